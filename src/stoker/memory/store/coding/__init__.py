"""Turns values into bytes and back."""

from stoker.memory.store.coding.alone import is_alone
from stoker.memory.store.coding.encoding import encode, have_made
from stoker.memory.store.coding.layout import NotStorable
from stoker.memory.store.coding.validate import is_valid
from stoker.memory.store.coding.value import Rows, Value

__all__ = ["NotStorable", "Rows", "Value", "encode", "have_made", "is_alone", "is_valid"]
