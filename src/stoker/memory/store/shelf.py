"""Values that the workers of one machine share: made once, read by all, in memory without a name.

    tails | rows | index | seat 0 | seat 1 | ...

Each worker that writes has a seat: a range of the mapping that it alone appends to. The mapping is
sparse; its pages exist once they are touched, and all are gone with the last process that holds it.

Promise: what was not written whole is not found: the index learns of a value when it is there.
Values are read-only, except while `put` writes them and in private mappings (`own_view`). All
seats together hold at most the budget.
Owner: the trainer makes it and hands out the seats; a seat's worker writes to it.
"""

import contextlib
import ctypes
import math
import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from stoker.kept_files import KEY_NBYTES, SLOT_NBYTES, Entry
from stoker.memory.phases import Counts, added, most_wanted, must_go
from stoker.memory.store.checksum import checksum
from stoker.memory.store.disk import NUM_SEATS, Disk, DiskWish
from stoker.memory.store.index import Index
from stoker.memory.store.rows import MAX_PLACES, ROW_NBYTES, Row
from stoker.wire.arena import Arena

_NUM_SLOTS = 1 << 21  # of the index: 96 MB at most, of which only touched pages exist
_MAX_NBYTES = 32 << 40  # of address space, of 128 TiB
_SPAN_PER_BUDGET = 2
_PAGE_NBYTES = mmap.PAGESIZE
_ALIGN_NBYTES = 64
_libc = ctypes.CDLL(None)
_MADV_POPULATE_WRITE = 23  # Linux 5.14; before that it is refused, and pages come one by one
_TAIL = struct.Struct("<q")
_HAVE_ROWS_AT = (NUM_SEATS + 1) * _TAIL.size
_DROPPED_AT, _NUM_DROPPED, _PROBES = 1024, 128, 4  # a table by hash
_ROWS_AT = 4096
_CHECKS_AT = _DROPPED_AT + _NUM_DROPPED * KEY_NBYTES  # the tails once more
_OWNERS_AT = _CHECKS_AT + NUM_SEATS * _TAIL.size
assert _OWNERS_AT + NUM_SEATS * _TAIL.size <= _ROWS_AT
_INDEX_AT = -(-(_ROWS_AT + NUM_SEATS * MAX_PLACES * ROW_NBYTES) // _PAGE_NBYTES) * _PAGE_NBYTES
_SEATS_AT = _INDEX_AT + _NUM_SLOTS * SLOT_NBYTES


class Shelf:
    """The shared memory, as every process sees it that was forked from the trainer."""

    def __init__(self, budget_nbytes: int, arena: Arena | None = None) -> None:
        """Map it. budget_nbytes: of values; arena: that of a shelf of another process. Raises OSError
        where the system refuses."""
        self.budget_nbytes = budget_nbytes
        # What is removed leaves a hole: its place is not used again.
        wanted_nbytes = _SPAN_PER_BUDGET * max(budget_nbytes, 1)
        span_nbytes = min(wanted_nbytes, _MAX_NBYTES // NUM_SEATS)
        self.span_nbytes = -(-span_nbytes // _PAGE_NBYTES) * _PAGE_NBYTES
        self._arena = arena or _arena_of(_SEATS_AT + NUM_SEATS * self.span_nbytes)
        numbers = self._arena.view(0, (NUM_SEATS + 1) * _TAIL.size).cast("q")
        self._tails, self._removed = numbers[:NUM_SEATS], numbers[NUM_SEATS:]  # bytes
        self._have_rows = self._arena.view(_HAVE_ROWS_AT, NUM_SEATS)  # a byte a seat, its worker's
        self._dropped = self._arena.view(_DROPPED_AT, _NUM_DROPPED * KEY_NBYTES)
        self._index = Index(self._arena.view(_INDEX_AT, _NUM_SLOTS * SLOT_NBYTES), _NUM_SLOTS)
        self._checks = self._arena.view(_CHECKS_AT, NUM_SEATS * _TAIL.size).cast("q")
        self._owners = self._arena.view(_OWNERS_AT, NUM_SEATS * _TAIL.size).cast("q")  # pids
        # Whether values are mapped read-only; `put` and `make_room` lift that for their range.
        self._is_closed = self._arena.protect(_SEATS_AT, NUM_SEATS * self.span_nbytes)
        self.is_protected = self._is_closed  # and always were
        self._taken: set[int] = set()
        self._num_standing = 0  # workers that live, and got no seat
        self._owner_pid = os.getpid()
        self.disk: Disk | None = None
        self.why_no_disk = ""

    # -- the trainer's ---------------------------------------------------------------------------

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle only while a process is being started: multiprocessing carries the descriptors."""
        return _shelf_of, (self.budget_nbytes, self._arena, self.disk)

    @property
    def can_travel(self) -> bool:
        """Whether processes that are spawned can reach it."""
        return self._arena.can_travel

    def add_disk(self, wish: DiskWish) -> None:
        """Keep on disk too; what is in the way of that is told, and no more."""
        try:
            self.disk = Disk(wish)
        except (OSError, ValueError, OverflowError) as error:
            self.why_no_disk = f"{getattr(error, 'strerror', '') or error}: {wish.path}"

    def take_seats(self, num: int) -> list[int]:
        """Return seats for workers that are to be started; fewer where there are not as many, for then
        the others only read. The lowest first, so that each epoch's workers go on where the last one's
        ended, and few seats are looked at."""
        free = sorted(set(range(NUM_SEATS)) - self._taken)
        found = free[:num]
        self._taken.update(found)
        self._num_standing += num - len(found)
        return found

    def make_room(self) -> None:
        """Remove values that cost little, if there was no room for some that cost much; only while no
        worker lives, which may be reading them."""
        lives = self._taken or self._num_standing
        if lives or 2 * self.used_nbytes() < self.budget_nbytes:
            return  # no sample takes half of it
        wanted = most_wanted([counts for _, _, counts in self.places().values()])
        if wanted is None:
            return
        if self.used_nbytes() + _aligned(math.ceil(wanted.sample_nbytes)) <= self.budget_nbytes:
            return
        missing_nbytes = wanted.nbytes
        found = [(entry.made_us / entry.nbytes, key, entry) for key, entry in self._index.entries()]
        for cost, key, entry in sorted(found):
            if missing_nbytes <= 0 or not must_go(cost, wanted.us_per_byte):
                return
            self._index.remove(key)
            if not self._release(entry):
                return
            self._removed[0] += _aligned(entry.nbytes)
            missing_nbytes -= entry.nbytes

    def _release(self, entry: Entry) -> bool:
        """Give the memory of a value back. Returns whether the system does that."""
        try:
            with self._writable(entry.offset, entry.nbytes):
                return self._arena.release(_SEATS_AT + entry.offset, entry.nbytes)
        except OSError:
            self.is_protected = False
            return False

    def give_back(self, seats: list[int], num: int) -> None:
        """Free the seats of workers that have ended. num: of the workers, also of those that got none."""
        if os.getpid() == self._owner_pid:
            self._taken.difference_update(seats)
            self._num_standing -= num - len(seats)

    # -- everybody's -----------------------------------------------------------------------------

    def find(self, key: bytes) -> Entry | None:
        entry = self._index.find(key)
        if entry is None or entry.offset + entry.nbytes > NUM_SEATS * self.span_nbytes:
            return None
        return entry

    def view(self, entry: Entry) -> memoryview:
        """View a value, which stays where it is as long as the shelf."""
        return self._arena.view(_SEATS_AT + entry.offset, entry.nbytes)

    def own_view(self, entry: Entry) -> memoryview | None:
        """View a value so that nobody else sees what is written there; None if that cannot be."""
        return self._arena.own_view(_SEATS_AT + entry.offset, entry.nbytes)

    def is_whole(self, entry: Entry) -> bool:
        """Whether a value's bytes are those that were written."""
        return checksum(self._arena.address + _SEATS_AT + entry.offset, entry.nbytes) == entry.check

    def used_nbytes(self) -> int:
        return sum(self._tails) - self._removed[0]

    def places(self) -> dict[bytes, tuple[str, str, Counts]]:
        """Return name, why it is left alone, and counts of every place, by its key."""
        found: dict[bytes, list[Row]] = {}
        for row in self._rows():
            found.setdefault(row.key, []).append(row)
        return {
            key: (
                rows[0].name,
                next((row.why for row in rows if row.why), ""),
                added([row.read() for row in rows]),
            )
            for key, rows in found.items()
        }

    def leave_alone(self, places: Mapping[bytes, str]) -> None:
        """Have places left alone by all workers. places: by key, why."""
        for row in self._rows() if places else ():
            if row.key in places and not row.why:
                row.say_why(places[row.key])

    def drop(self, state: bytes) -> None:
        """Have all loaders leave alone what is kept of a state, 16 bytes, for a value of it differed.
        Of two that are said at once, and of more than four that share a place, one may be lost: then
        the loader that says it leaves it alone, and others find out for themselves."""
        for probe in range(_PROBES):
            at = (state[0] + probe) % _NUM_DROPPED * KEY_NBYTES
            if bytes(self._dropped[at : at + KEY_NBYTES]) in (state, bytes(KEY_NBYTES)):
                break
        self._dropped[at : at + KEY_NBYTES] = state

    @property
    def dropped(self) -> bytes:
        """The states of which a value differed, one after another; 16 zeros where there is none."""
        return bytes(self._dropped)

    def counts_of(self, key: bytes) -> tuple[Counts, str]:
        """Return what all seats know of one place, and why it is left alone if it is."""
        rows = [row for row in self._rows() if row.key == key]
        return added([row.read() for row in rows]), next((row.why for row in rows if row.why), "")

    def origin_of(self, key: bytes) -> bytes:
        """Return what a place of this run had as its state at first; empty if nobody has said."""
        return next((row.origin for row in self._rows() if row.key == key and row.origin), b"")

    def _rows(self) -> Iterator[Row]:
        """Iterate the rows of all seats; of most there are none, and these are not touched."""
        for seat, has_rows in enumerate(bytes(self._have_rows)):
            if has_rows:
                yield from self.rows_of(seat)

    def rows_of(self, seat: int) -> Iterator[Row]:
        """Iterate the rows that a seat has begun."""
        for number in range(MAX_PLACES):
            row = self.row(seat, number)
            if row.key == bytes(KEY_NBYTES):
                return
            yield row

    def row(self, seat: int, number: int) -> Row:
        at = _ROWS_AT + (seat * MAX_PLACES + number) * ROW_NBYTES
        return Row(self._arena.view(at, ROW_NBYTES))

    # -- a seat's worker's -----------------------------------------------------------------------

    def note_rows(self, seat: int) -> None:
        self._have_rows[seat] = 1

    def own(self, seat: int) -> None:
        """Have this process write there, and nobody else: not a worker that lives on in secret."""
        self._owners[seat] = os.getpid()

    def has_room(self, seat: int, nbytes: int) -> bool:
        start = self._tail_of(seat)
        if nbytes >= 1 << 32 or start is None:
            return False  # more than an entry can tell
        taken_nbytes = _aligned(nbytes)
        fits = self.used_nbytes() + taken_nbytes <= self.budget_nbytes
        return fits and start + taken_nbytes <= self.span_nbytes

    def _tail_of(self, seat: int) -> int | None:
        """Return where a seat's values end. None if that is damaged, for there would be values, or if
        another process writes there."""
        is_whole = 0 <= self._tails[seat] == self._checks[seat]
        return self._tails[seat] if is_whole and self._owners[seat] in (0, os.getpid()) else None

    def put(self, seat: int, key: bytes, parts: list[memoryview], made_us: int) -> bool:
        """Append a value and tell the index. Returns False if the index has no room for its key, if
        other workers have just taken the room, or if it cannot be written there."""
        start = self._tail_of(seat)
        if start is None or not self._index.has_room(key):
            return False
        nbytes = sum(part.nbytes for part in parts)
        # The room is taken before it is looked at: of workers that want the last of it in the same
        # moment, each sees the others. One that dies from here on leaves it unused, and no more.
        self._move_tail(seat, start + _aligned(nbytes))
        offset = seat * self.span_nbytes + start
        is_written = False
        try:
            fits = self.used_nbytes() <= self.budget_nbytes
            is_written = fits and self._write(offset, nbytes, parts)
        finally:
            if not is_written:
                self._move_tail(seat, start)
        if not is_written:
            return False
        check = checksum(self._arena.address + _SEATS_AT + offset, nbytes)
        entry = Entry(offset, nbytes, min(made_us, (1 << 32) - 1), os.getpid(), check)
        return self._index.add(key, entry)

    def _move_tail(self, seat: int, tail: int) -> None:
        self._tails[seat] = self._checks[seat] = tail

    def _write(self, offset: int, nbytes: int, parts: list[memoryview]) -> bool:
        at = offset
        try:
            with self._writable(offset, nbytes):
                _touch(self._arena.address + _SEATS_AT + at, nbytes)
                for part in parts:
                    where = _SEATS_AT + at
                    self._arena.view(where, part.nbytes)[:] = part.cast("B")
                    at += part.nbytes
        except OSError:
            self.is_protected = False
            return False
        return True

    def _writable(self, offset: int, nbytes: int) -> contextlib.AbstractContextManager[None]:
        if not self._is_closed:
            return contextlib.nullcontext()
        return self._arena.writable(_SEATS_AT + offset, nbytes)


class Seat:
    """A worker's own place at the shelf. number: None if it may only read."""

    def __init__(self, shelf: Shelf, number: int | None) -> None:
        self.shelf = shelf
        self.number = number
        if number is not None:
            shelf.own(number)

    def row_of(self, key: bytes, name: str) -> Row | None:
        """Return the seat's row of a place, begun if need be; None if there is none to be had."""
        if self.number is None:
            return None
        num = 0
        for row in self.shelf.rows_of(self.number):
            if row.key == key:
                return row
            num += 1
        if num == MAX_PLACES:
            return None
        row = self.shelf.row(self.number, num)
        row.begin(key, name)
        self.shelf.note_rows(self.number)
        return row


class ShelfAccess(NamedTuple):
    """What a worker is given. seat: None, it may only read; loader: bytes that tell the loader;
    audit: keep and compare, never serve; trusted: see `Wish`."""

    shelf: Shelf
    seat: int | None
    loader: bytes
    audit: bool
    trusted: frozenset[str] = frozenset()


def _shelf_of(budget_nbytes: int, arena: Arena, disk: Disk | None) -> Shelf:
    shelf = Shelf(budget_nbytes, arena)
    shelf.disk = disk
    return shelf


def _arena_of(nbytes: int) -> Arena:
    """Return memory with a descriptor, by which parts of it can be mapped once more; without one
    where the system refuses that. Raises OSError where it refuses both."""
    try:
        return Arena(nbytes, can_travel=True)
    except OSError:  # ulimit -f
        return Arena(nbytes)


def make_shelf(budget_nbytes: int) -> Shelf | None:
    """Return a shelf; None if the system maps no such memory."""
    try:
        return Shelf(budget_nbytes)
    except (OSError, ValueError, OverflowError):
        return None


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGN_NBYTES) * _ALIGN_NBYTES


def _touch(address: int, nbytes: int) -> None:
    """Have the kernel make the pages of a range all at once: half of what single faults take."""
    start = address // _PAGE_NBYTES * _PAGE_NBYTES
    length = -(-(address + nbytes - start) // _PAGE_NBYTES) * _PAGE_NBYTES
    _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), _MADV_POPULATE_WRITE)
