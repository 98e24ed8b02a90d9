"""Values on disk that the workers of a machine share, and that the next run finds again if asked.

    head | why | segments | index           shared memory, as that of the shelf (shelf.py)
    a pair of files for each seat of a run  (folder.py)

A segment is a file of values. Values are read with `pread` and never mapped: a file that is cut
short is a miss so, and no SIGBUS.
Promise: what fails costs speed and is told once; nothing is written then, and what is there is read.
Owner: the trainer makes it and opens the seats' files; a seat's worker writes to them.
"""

import contextlib
import ctypes
import os
import struct
import sys
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any, NamedTuple

from stoker import descriptors
from stoker.kept_files import SLOT_NBYTES, Entry, slot_of, write_at
from stoker.memory.phases import Counts
from stoker.memory.store.checksum import checksum
from stoker.memory.store.disk.folder import Folder
from stoker.memory.store.index import Index
from stoker.wire.arena import Arena

NUM_SEATS = 64  # of workers that write at once; one without a seat only reads
MAX_SEGMENTS = 2048  # of earlier runs; older ones are not read
_NUM_SLOTS = 1 << 21
_ALIGN_NBYTES = 64
_LOOK_EVERY_NBYTES = 64 << 20  # written, between two looks at what other runs have written
_NAME = struct.Struct("<32s")
_TEXT_NBYTES = 256
_HEAD = 2 + 2 * NUM_SEATS + MAX_SEGMENTS  # numbers of 8 bytes: see _Head
_WHY_AT = 8 * _HEAD
_NAMES_AT = _WHY_AT + _TEXT_NBYTES
_INDEX_AT = -(-(_NAMES_AT + MAX_SEGMENTS * _NAME.size) // 4096) * 4096


class DiskWish(NamedTuple):
    """What a run wants of a disk. keeps: for the next run; if not, all is gone with this one."""

    path: Path
    nbytes: int
    keeps: bool


class Disk:
    """Raises OSError where the folder cannot be made or is not safe, or the memory is refused."""

    def __init__(self, wish: DiskWish) -> None:
        self._wish = wish
        self._folder = Folder(wish.path, wish.nbytes)
        self._files: dict[int, tuple[int, int]] = {}  # of the seats
        self._told: dict[int, tuple[descriptors.Identity, ...]] = {}  # which files these are
        self._num_segments = NUM_SEATS
        self._loaders: frozenset[bytes] = frozenset()  # that have begun
        self._begin(Arena(_INDEX_AT + _NUM_SLOTS * SLOT_NBYTES, can_travel=True))
        if self.keeps:
            self._load()
        self._others[0] = self._folder.used_nbytes()

    def _begin(self, arena: Arena) -> None:
        self.budget_nbytes, self.keeps = self._wish.nbytes, self._wish.keeps
        self._arena = arena
        numbers = self._arena.view(0, 8 * _HEAD).cast("q")
        self._others = numbers[:1]  # bytes of other runs' files, as last seen
        self._was_full = numbers[1:2]
        self._tails = numbers[2 : 2 + NUM_SEATS]
        self._num_slots = numbers[2 + NUM_SEATS : 2 + 2 * NUM_SEATS]
        self._was_read = numbers[2 + 2 * NUM_SEATS :]  # of each segment, by this run
        index_nbytes = _NUM_SLOTS * SLOT_NBYTES
        self._index = Index(self._arena.view(_INDEX_AT, index_nbytes), _NUM_SLOTS)
        self._readable: dict[int, int | None] = {}  # descriptors of segments

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only while a process is being started: multiprocessing carries the descriptors."""
        files = {seat: tuple(map(DupFd, fds)) for seat, fds in self._files.items()}
        return _disk_of, (self._wish, self._folder, self._num_segments, self._arena, files)

    def __del__(self) -> None:
        for seat, fds in getattr(self, "_files", {}).items():
            for fd, told in zip(fds, self._told[seat], strict=True):
                descriptors.close(fd, told)
        for fd in getattr(self, "_readable", {}).values():
            if fd is not None:
                os.close(fd)

    # -- the trainer's ---------------------------------------------------------------------------

    def _load(self) -> None:
        """Take up what earlier runs have kept, as much as the index has room for."""
        most = MAX_SEGMENTS - NUM_SEATS, _NUM_SLOTS * SLOT_NBYTES
        for name, slots in self._folder.earlier(*most):
            number, self._num_segments = self._num_segments, self._num_segments + 1
            at = _NAMES_AT + number * _NAME.size
            self._arena.view(at, _NAME.size)[:] = _NAME.pack(name.encode())
            self._index.load(slots, number)

    def open_seats(self, seats: list[int]) -> None:
        """Before workers are forked open the files without a name that they write to."""
        for seat in seats if not self.keeps else ():
            if seat not in self._files and not self.why:
                self._open(seat)

    def _open(self, seat: int) -> bool:
        try:
            name = self._folder.name_of(seat)
            self._files[seat] = self._folder.open_new(name, self.keeps)
            self._told[seat] = tuple(map(descriptors.of, self._files[seat]))
        except OSError as error:
            self.say_why(f"{error.strerror or error}: {self._folder.path}")
            return False
        return True

    def make_room(self, loader: bytes) -> None:
        """Remove what this run has not read, if there was no room for more. loader: which begins; only
        when it has been there before, and so others, as that of a validation set, had their turn."""
        has_been, self._loaders = loader in self._loaders, self._loaders | {loader}
        if self.keeps and has_been and self._was_full[0]:
            self._was_full[0] = 0
            for number in range(NUM_SEATS, self._num_segments):
                if not self._was_read[number]:
                    self._folder.remove_pair(self._name_of(number))
            self._look_at_others()

    def used_nbytes(self) -> int:
        return sum(self._tails) + SLOT_NBYTES * sum(self._num_slots) + self._others[0]

    @property
    def path(self) -> str:
        return str(self._folder.path)

    @property
    def why(self) -> str:
        """Why no more is written; empty if nothing is in the way."""
        text = bytes(self._arena.view(_WHY_AT, _TEXT_NBYTES))
        return text.partition(b"\0")[0].decode(errors="replace")

    def say_why(self, why: str) -> None:
        data = why.encode(errors="replace")[: _TEXT_NBYTES - 1]
        self._arena.view(_WHY_AT, _TEXT_NBYTES)[:] = data.ljust(_TEXT_NBYTES, b"\0")

    def learnt(self, digest: bytes) -> Counts | None:
        """Return what an earlier run learnt of a dataset in this very state."""
        return self._folder.learnt(digest) if self.keeps else None

    def note_learnt(self, digest: bytes, counts: Counts) -> None:
        if self.keeps and not self.why:
            try:
                self._folder.note_learnt(digest, counts)
            except OSError as error:
                self.say_why(f"{error.strerror or error}: {self._folder.path}")

    # -- everybody's -----------------------------------------------------------------------------

    def find(self, key: bytes) -> Entry | None:
        """Return where a value lies; its pid is the segment's number."""
        return self._index.find(key)

    def read(self, entry: Entry) -> memoryview | None:
        """Return a copy of a value, in memory of its own; None if it is damaged or gone."""
        fd = self._descriptor_of(entry.pid)
        try:
            if fd is None or not self._folder.has(fd, entry):
                return None
            found = _memory_of(entry.nbytes)
            num = os.preadv(fd, [found], entry.offset)
        except OSError:
            return None
        return found if num == entry.nbytes and _checksum(found) == entry.check else None

    def descriptors(self) -> set[int]:
        """Return those of the files that are open."""
        readable = {fd for fd in self._readable.values() if fd is not None}
        return readable.union(*self._files.values())

    def _descriptor_of(self, segment: int) -> int | None:
        if segment in self._files:
            return self._files[segment][0]
        if segment < NUM_SEATS and not self.keeps:
            return None  # of workers that were forked after this one
        if segment not in self._readable:
            self._readable[segment] = self._folder.open_values(self._name_of(segment))
            self._was_read[segment] = 1
        return self._readable[segment]

    def _name_of(self, segment: int) -> str:
        if segment < NUM_SEATS:
            return self._folder.name_of(segment)
        data = bytes(self._arena.view(_NAMES_AT + segment * _NAME.size, _NAME.size))
        return data.partition(b"\0")[0].decode(errors="replace")

    # -- a seat's worker's -----------------------------------------------------------------------

    def has_room(self, seat: int, nbytes: int) -> bool:
        can_write = self.keeps or seat in self._files
        if nbytes >= 1 << 32 or not can_write or self.why:
            return False
        has_room = self.used_nbytes() + nbytes + SLOT_NBYTES <= self.budget_nbytes
        self._was_full[0] |= not has_room
        return has_room

    def put(self, seat: int, key: bytes, parts: list[memoryview], made_us: int) -> bool:
        """Append a value, and tell the index and the file of slots. Returns False if that fails."""
        if not self._index.has_room(key):
            return False
        if seat not in self._files and not self._open(seat):
            return False
        if not all(map(descriptors.is_still, self._files[seat], self._told[seat])):
            # Another file may have got the number since: nothing is written to that, nor closed.
            del self._files[seat]
            self.say_why("something in the script has closed its files")
            return False
        values_fd, index_fd = self._files[seat]
        joined = _memory_of(sum(part.nbytes for part in parts))
        at = 0
        for part in parts:
            joined[at : at + part.nbytes] = part.cast("B")
            at += part.nbytes
        start, number = self._tails[seat], self._num_slots[seat]
        entry = Entry(start, at, min(made_us, (1 << 32) - 1), seat, _checksum(joined))
        try:
            write_at(values_fd, joined, start)
            self._tails[seat] = -(-(start + at) // _ALIGN_NBYTES) * _ALIGN_NBYTES
            write_at(index_fd, memoryview(slot_of(key, entry)), number * SLOT_NBYTES)
        except OSError as error:
            self.say_why(f"{error.strerror or error}: {self._folder.path}")
            return False
        self._num_slots[seat] = number + 1
        if start // _LOOK_EVERY_NBYTES != self._tails[seat] // _LOOK_EVERY_NBYTES:
            self._look_at_others()
        return self._index.add(key, entry)

    def _look_at_others(self) -> None:
        own = sum(self._tails) + SLOT_NBYTES * sum(self._num_slots) if self.keeps else 0
        with contextlib.suppress(OSError):  # the folder is gone
            self._others[0] = max(self._folder.used_nbytes() - own, 0)


def _disk_of(
    wish: DiskWish,
    folder: Folder,
    num_segments: int,
    arena: Arena,
    files: dict[int, tuple[Any, Any]],
) -> Disk:
    disk = object.__new__(Disk)
    disk._wish, disk._folder, disk._num_segments = wish, folder, num_segments
    disk._files = {seat: (one.detach(), two.detach()) for seat, (one, two) in files.items()}
    disk._told = {seat: tuple(map(descriptors.of, fds)) for seat, fds in disk._files.items()}
    disk._begin(arena)
    return disk


def _memory_of(nbytes: int) -> memoryview:
    """Return memory that nothing else holds; NumPy does not clear it first."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or not nbytes:
        return memoryview(bytearray(nbytes))
    return memoryview(numpy.empty(nbytes, numpy.uint8))


def _checksum(memory: memoryview) -> int:
    return checksum(ctypes.addressof(ctypes.c_char.from_buffer(memory)), memory.nbytes)
