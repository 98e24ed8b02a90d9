"""Keeps values in memory that the workers of a machine share."""

from stoker.memory.store.coding import NotStorable, Rows, Value, encode, is_alone
from stoker.memory.store.index import Entry
from stoker.memory.store.rows import MAX_PLACES
from stoker.memory.store.shelf import NUM_SEATS, Seat, Shelf, ShelfAccess, make_shelf
from stoker.memory.store.shelves import Seats, Wish, own_shelf

__all__ = [
    "MAX_PLACES", "NUM_SEATS", "Entry", "NotStorable", "Rows", "Seat", "Seats", "Shelf",
    "ShelfAccess", "Value", "Wish", "encode", "is_alone", "make_shelf", "own_shelf",
]  # fmt: skip
