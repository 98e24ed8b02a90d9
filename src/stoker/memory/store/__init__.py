"""Keeps values in memory that the workers of a machine share."""

from stoker.memory.store.coding import NotStorable, Value, encode, is_alone
from stoker.memory.store.disk import DiskWish
from stoker.memory.store.shelf import Seat, Shelf, ShelfAccess, make_shelf
from stoker.memory.store.shelves import Seats, Wish, own_shelf
from stoker.memory.store.stores import Kept, Key, Stores, key_of

__all__ = [
    "DiskWish", "Kept", "Key", "NotStorable", "Seat", "Seats", "Shelf", "ShelfAccess", "Stores",
    "Value", "Wish", "encode", "is_alone", "key_of", "make_shelf", "own_shelf",
]  # fmt: skip
