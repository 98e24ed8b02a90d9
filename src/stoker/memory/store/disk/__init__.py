"""Keeps values in files, for this run and, if asked, for the next."""

from stoker.memory.store.disk.disk import NUM_SEATS, Disk, DiskWish

__all__ = ["NUM_SEATS", "Disk", "DiskWish"]
