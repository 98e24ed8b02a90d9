"""Keeps values in memory that the workers of a machine share."""

from stoker.memory.store.coding import (
    NotStorable,
    Rows,
    Value,
    encode,
    have_made,
    is_alone,
    is_valid,
)
from stoker.memory.store.disk import NUM_SEATS, DiskWish
from stoker.memory.store.shelf import Seat, Shelf, ShelfAccess, make_shelf
from stoker.memory.store.shelves import Seats, Wish, WishAway, own_shelf
from stoker.memory.store.stores import Kept, Key, Stores, are_equal, key_of, told_of

__all__ = [
    "NUM_SEATS", "DiskWish", "Kept", "Key", "NotStorable", "Rows", "Seat", "Seats", "Shelf",
    "ShelfAccess", "Stores", "Value", "Wish", "WishAway", "are_equal", "encode", "have_made", "is_alone", "is_valid", "key_of",
    "make_shelf", "own_shelf", "told_of",
]  # fmt: skip
