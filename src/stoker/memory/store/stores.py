"""What one worker finds and keeps: in memory first, then on disk.

Promise: what `memory_of` returns are the bytes that were kept under exactly this key, checked; so is
what `own_memory_of` returns, checked or protected.
Owner: the worker's main thread.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from stoker.clock import now_s
from stoker.kept_files import Entry
from stoker.memory.phases import MIN_GAIN, Counts
from stoker.memory.store.coding import is_valid
from stoker.memory.store.disk import Disk
from stoker.memory.store.shelf import ShelfAccess

_PIECE_NBYTES = 1 << 18
_NUM_TO_JUDGE = 16  # values read from a disk, before it is judged


class Key(NamedTuple):
    """What a value is kept under. lasting: in another run too; empty if it is not to be."""

    now: bytes
    lasting: bytes


def key_of(state: bytes, lasting: bytes, index: object) -> Key:
    """state, lasting: all that the value depends on, in this run, and in another one too; index: of
    what `repr` tells apart."""
    told = repr(index).encode()
    now = hashlib.blake2b(state + told, digest_size=16).digest()
    return Key(now, hashlib.blake2b(lasting + told, digest_size=16).digest() if lasting else b"")


_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}  # NumPy's


def told_of(index: Any) -> Any:
    """Return what tells an index from all others, of what `repr` tells apart; None if it is not plain."""
    kind = type(index)
    if kind is int or kind is str:
        return index
    if kind is tuple:
        parts = [told_of(each) for each in index]
        return None if None in parts else ("tuple", parts)
    if kind is bool or kind is float:
        return kind.__name__, index
    is_numpys = kind.__module__ == "numpy" and kind.__name__ in _INTEGERS
    return (kind.__name__, int(index)) if is_numpys else None


class Kept(NamedTuple):
    """A value that was found."""

    entry: Entry
    is_on_disk: bool

    @property
    def made_us(self) -> int:
        return self.entry.made_us


class Stores:
    def __init__(self, access: ShelfAccess) -> None:
        self._shelf, self.seat = access.shelf, access.seat
        self._disk: Disk | None = access.shelf.disk
        self.wrote_s = 0.0  # to the disk, which waits
        self._num_read = 0  # from there
        self._read_s = self._made_s = 0.0  # that took, and what it would have taken to make them

    @property
    def lasts(self) -> bool:
        """Whether another run may find what is kept."""
        return self._disk is not None and self._disk.keeps

    @property
    def has_disk(self) -> bool:
        return self._disk is not None

    def descriptors(self) -> set[int]:
        """Return those of the files on disk."""
        return set() if self._disk is None else self._disk.descriptors()

    def find(self, key: Key) -> Kept | None:
        entry = self._shelf.find(key.now)
        if entry is not None:
            return Kept(entry, is_on_disk=False)
        if self._disk is None or not self._uses_disk(key):
            return None
        entry = self._disk.find(key.lasting)
        return None if entry is None else Kept(entry, is_on_disk=True)

    def memory_of(self, kept: Kept) -> memoryview | None:
        """Return a value's bytes, to be read only; None if they are damaged or gone."""
        if kept.is_on_disk:
            return self._read(kept.entry)
        # Each time: a persistent worker would never hear of damage after its first look.
        return self._shelf.view(kept.entry) if self._shelf.is_whole(kept.entry) else None

    def own_memory_of(self, kept: Kept) -> memoryview | None:
        """Return a value's bytes in memory that nobody else sees; None if there is none to be had, if
        they are gone, or damaged where the shelf does not protect them. To check a large value takes
        longer than to use a part of it."""
        if kept.is_on_disk:
            return self._read(kept.entry)
        if not self._shelf.is_protected and not self._shelf.is_whole(kept.entry):
            return None
        return self._shelf.own_view(kept.entry)

    def _read(self, entry: Entry) -> memoryview | None:
        assert self._disk is not None
        began_s = now_s()
        found = self._disk.read(entry)
        self._num_read += 1
        self._read_s += now_s() - began_s
        self._made_s += entry.made_us / 1e6
        # Checksums are no secret: somebody may have made both.
        return found if found is not None and is_valid(found) else None

    def _uses_disk(self, key: Key) -> bool:
        """Whether a value is looked for and kept there."""
        return key.lasting != b"" and not self._is_slow()

    def _is_slow(self) -> bool:
        """Whether the disk has been found to be no faster than making samples again."""
        return self._num_read >= _NUM_TO_JUDGE and MIN_GAIN * self._read_s > self._made_s

    def is_of_another(self, kept: Kept, pid: int) -> bool:
        """Whether another worker has made a value than the one with this pid."""
        return kept.entry.pid != (self.seat if kept.is_on_disk else pid)

    def learnt(self, state: bytes) -> Counts | None:
        """Return what an earlier run has learnt of a place in this state."""
        return None if self._disk is None else self._disk.learnt(state)

    def note_learnt(self, state: bytes, counts: Counts) -> None:
        """Tell other runs what was learnt of a place. state: empty if that could not be told."""
        if self._disk is not None and state:
            self._disk.note_learnt(state, counts)

    def has_room(self, key: Key, nbytes: int) -> bool:
        """Whether there is room, on disk too if the key is one that has a place there."""
        seat = self.seat
        if seat is None:
            return False
        if self._shelf.has_room(seat, nbytes):
            return True
        disk = self._disk
        return disk is not None and self._uses_disk(key) and disk.has_room(seat, nbytes)

    def put(self, key: Key, parts: list[memoryview], made_us: int) -> bool:
        """Keep a value in memory, and on disk if it is to last or if memory is full. Returns
        whether it is kept."""
        if self.seat is None:
            return False
        nbytes = sum(part.nbytes for part in parts)
        is_kept = self._shelf.has_room(self.seat, nbytes) and self._shelf.put(
            self.seat, key.now, parts, made_us
        )
        if self._disk is None or not self._uses_disk(key) or (is_kept and not self.lasts):
            return is_kept
        if self._disk.has_room(self.seat, nbytes):
            began_s = now_s()
            is_kept |= self._disk.put(self.seat, key.lasting, parts, made_us)
            self.wrote_s += now_s() - began_s
        return is_kept


def are_equal(parts: Sequence[memoryview], held: memoryview) -> bool:
    """Compare in pieces that fit the caches: a memoryview compares number by number."""
    at = 0
    for part in parts:
        flat = part.cast("B")
        for start in range(0, flat.nbytes, _PIECE_NBYTES):
            piece = flat[start : start + _PIECE_NBYTES].tobytes()
            if piece != held[at : at + len(piece)].tobytes():
                return False
            at += len(piece)
    return at == held.nbytes
