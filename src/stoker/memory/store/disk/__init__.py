"""Keeps values in files, for this run and, if asked, for the next."""

from stoker.memory.store.disk.disk import Disk, DiskWish

__all__ = ["Disk", "DiskWish"]
