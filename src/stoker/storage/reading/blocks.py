"""Reads files by blocks: from memory, from disk, and from the origin once, however many ask at once.

A small file is one block and one request. Of a large one a read fetches the blocks that it needs; where
reads follow each other those behind it are fetched, too, more and more of them, in requests of 4 MiB.
Promise: each block is asked of the origin once while it is kept or on its way; no more than
`num_at_once` requests are in flight to origins, and as many to other machines; what somebody waits for
goes before what is fetched ahead.
Threads: `read` is called by any; the fetchers are this object's own.
"""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, Protocol

from stoker.clock import Deadline, now_s
from stoker.storage.origins import UNKNOWN, Again, Answer, Piece, Source
from stoker.storage.reading.disk import Disk
from stoker.storage.reading.fetch import Fetch, Queue
from stoker.storage.reading.file import MERGED_BLOCKS, File, file_of
from stoker.storage.reading.getter import Getter, Request
from stoker.storage.reading.memory import Key, Memory
from stoker.storage.reading.retry import LIMIT_S, patiently
from stoker.storage.reading.stats import StorageStats

MAX_AHEAD_BLOCKS = 128  # behind a reader that goes on: 32 MiB, 0.25 s of 1 Gbit/s
SKIPPED_BLOCKS = 4  # what others read who take turns: a megabyte, at least
ALONE_BLOCKS = 512  # without a gap: then nobody takes turns any more
NUM_AT_ONCE = 64  # 1 Gbit/s over 10 ms is 32 files of 40 KB on their way


class _Run(NamedTuple):
    """How a file is read. due: the next block in order; num_ahead: blocks that are fetched behind it;
    is_shared: what lies between is read by others; in_row: blocks without a gap."""

    due: int = 0
    num_ahead: int = 0
    is_shared: bool = False
    in_row: int = 0


class Homes(Protocol):
    """Other machines that have blocks."""

    def source_of(self, file: File, first: int) -> Source | None:
        """Return who has to be asked first for a block; None if that is the origin."""

    def has_failed(self, source: Source) -> None:
        """Note that one has not answered."""


class Blocks:
    def __init__(
        self,
        memory: Memory,
        disk: Disk | None,
        stats: StorageStats,
        limit_s: float = LIMIT_S,
        num_at_once: int = NUM_AT_ONCE,
        on_error: Callable[[str, Exception], None] = lambda url, error: None,
        on_found: Callable[[File], None] = lambda file: None,
        homes: Homes | None = None,
    ) -> None:
        """on_error: told of each fetch that failed for good; on_found: of each file whose size was
        not known before; homes: who is asked before the origin."""
        self.stats, self.memory, self.disk = stats, memory, disk
        self._limit_s, self._on_error, self._on_found = limit_s, on_error, on_found
        self._homes = homes
        lock = threading.Lock()  # guards all below
        self._work, self._room = lock, threading.Condition(lock)
        self._to_origins, self._to_peers = Queue(num_at_once), Queue(num_at_once)
        self._coming: dict[Key, Fetch] = {}
        self._ahead_nbytes = 0  # of what is fetched ahead, queued or in flight
        self._runs: dict[bytes, _Run] = {}  # by file
        self._is_closed = threading.Event()
        # Blocks that came from the origin, or from disk, and were not read to their end yet.
        self._unread: set[Key] = set()
        self._from_disk: set[Key] = set()
        self._num_in_threads, self._num_threads = 0, num_at_once
        self._pool = ThreadPoolExecutor(2 * num_at_once, "storage-fetch")
        self._getter = Getter(self._next)

    # -- readers ---------------------------------------------------------------------------------

    def read(self, file: File, start: int, nbytes: int) -> bytes:
        """Return up to `nbytes` bytes of a file from `start` on. Raises OriginError."""
        end = min(start + nbytes, file.nbytes)
        if start >= end:
            return b""
        self.stats.num_reads += 1
        size = file.block_nbytes
        first, last = start // size, (end - 1) // size
        if file.num_blocks > 1:
            was_here = self._has(file, first)
            if not was_here:
                self._want(file, first, last)  # before what lies behind it
            self._note_run(file, first, last, was_here)
        pieces = []
        for number in range(first, last + 1):
            data = self._block(file, number, last)
            begin, stop = max(start - number * size, 0), min(end - number * size, size)
            pieces.append(data if stop - begin == len(data) else data[begin:stop])
            self._count(file, number, stop - begin)
            if stop == len(data):
                self._was_read((file.digest, number))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def read_for_peer(
        self, file: File, start: int, end: int, may_wait: bool
    ) -> "bytes | Fetch | None":
        """Return bytes of a file for another machine: of the origin, if they are not here. If they
        may not be waited for: the fetch that brings them, or None. Raises OriginError."""
        size = file.block_nbytes
        first, last = start // size, (min(end, file.nbytes) - 1) // size
        keys = [(file.digest, number) for number in range(first, last + 1)]
        if not may_wait:
            lacking = [number for _, number in keys if not self.memory.has((file.digest, number))]
            if lacking:
                return self._want(file, lacking[0], last, file.origin)
        pieces = []
        for number in range(first, last + 1):
            data = self._find(file, number)
            while data is None:
                fetch = self._want(file, number, last, file.origin)
                if not may_wait:  # it was dropped just now
                    return fetch
                if fetch is None:  # it has come just now
                    data = self._find(file, number)
                else:
                    fetch.wait()
                    data = fetch.got.get(number)
            pieces.append(data)
            self._was_read((file.digest, number))
        whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return whole[start - first * size : end - first * size]

    def _count(self, file: File, number: int, nbytes: int) -> None:
        """Count bytes that were found here, but for those that were fetched for this very reader."""
        key = file.digest, number
        if key in self._from_disk:
            self.stats.disk_nbytes += nbytes
        elif key not in self._unread:
            self.stats.memory_nbytes += nbytes

    def _was_read(self, key: Key) -> None:
        self._unread.discard(key)
        self._from_disk.discard(key)
        if self.memory.was_read(key):
            with self._room:
                self._room.notify()

    def _block(self, file: File, number: int, last: int) -> bytes:
        data = self._find(file, number)
        while data is None:
            fetch = self._want(file, number, last)
            # None: it has come just now.
            data = self._find(file, number) if fetch is None else self._wait(fetch).got.get(number)
        return data

    def find_out(self, file: File, known: Callable[[], File | None]) -> File:
        """Return what a file is whose size no listing tells. Raises OriginError.

        known: what on_found has been told of it, if it was told meanwhile."""
        with self._work:  # on_found is told before a fetch is forgotten
            found = known()
            if found is not None:
                return found
            fetch = self._wanted_fetch(file, 0, 0)
        found = self._wait(fetch).found
        assert found is not None
        return found

    def _wait(self, fetch: Fetch) -> Fetch:
        if not fetch.has_come.is_set():
            began_s = now_s()
            fetch.has_come.wait()
            self.stats.num_waits += 1
            self.stats.wait_s += now_s() - began_s
        fetch.wait()
        return fetch

    def _find(self, file: File, number: int) -> bytes | None:
        key = file.digest, number
        data = self.memory.find(key)
        if data is None and self.disk is not None and (data := self.disk.find(key)) is not None:
            self._from_disk.add(key)
            self.memory.add(key, data)
        return data

    def _want(
        self, file: File, number: int, last: int, source: Source | None = None
    ) -> Fetch | None:
        """Return the fetch that brings a block: one that is on its way, or a new one, with the blocks
        up to `last` that are missing, too. None if it is here. source: who a new one asks, and no other."""
        with self._work:  # what has come is kept before its fetch is forgotten
            is_coming = (file.digest, number) in self._coming
            if not is_coming and self._has(file, number):
                return None
            return self._wanted_fetch(file, number, last, source)

    def _wanted_fetch(
        self, file: File, number: int, last: int, source: Source | None = None
    ) -> Fetch:
        """As _want, under the lock."""
        fetch = self._coming.get((file.digest, number))
        if fetch is None:
            if self._is_closed.is_set():  # nobody fetches it any more
                raise Again("the run ends")
            fetch = self._add(file, number, last, False, source)
        elif self._queue_of(fetch).hurry(fetch):  # now somebody waits for it
            self._getter.wake()
        return fetch

    def _note_run(self, file: File, first: int, last: int, was_here: bool) -> None:
        """Fetch ahead of a reader that goes on where it was; four times as far each time, up to a limit.
        From 4 MiB on whole requests of that size only: each has a round trip of its own."""
        due, num_ahead, is_shared, in_row = self._runs.get(file.digest, _Run())
        if first == due - 1 and last < due:
            return  # in the block that it has read before
        # Several read one file, each some samples in a row, and what was fetched ahead is of use.
        is_next = num_ahead > 0 and was_here and due < first <= due + MAX_AHEAD_BLOCKS
        in_row = in_row + last + 1 - due if first in (due - 1, due) else 0
        if is_next or in_row:
            num_ahead = min(4 * num_ahead + 4, MAX_AHEAD_BLOCKS)
            # Pieces of one reader's may come in any order, but near each other.
            skips = is_next and first >= due + SKIPPED_BLOCKS
            is_shared = skips or (is_shared and in_row <= ALONE_BLOCKS)
        else:
            num_ahead = num_ahead // 2 if abs(first - due) <= MAX_AHEAD_BLOCKS else 0
            is_shared = is_shared and num_ahead > 0
        if len(self._runs) > 4096:  # files that nobody reads any more
            self._runs.clear()
        self._runs[file.digest] = _Run(last + 1, num_ahead, is_shared, in_row)
        if num_ahead:
            until = last + num_ahead
            if num_ahead >= MERGED_BLOCKS:
                until -= until % MERGED_BLOCKS - (MERGED_BLOCKS - 1)
            self.fetch_ahead(file, last + 1, min(until, file.num_blocks - 1), is_shared)

    # -- ahead -----------------------------------------------------------------------------------

    def lacks(self, file: File, first: int, last: int) -> bool:
        """Whether a block from `first` to `last` is neither here nor on its way."""
        return not all(self._has(file, number) for number in range(first, last + 1))

    def keeps(self, file: File, last: int) -> bool:
        """Whether all blocks up to `last` are here to stay."""
        return all(self.memory.keeps((file.digest, number)) for number in range(last + 1))

    def fetch_ahead(self, file: File, first: int, last: int, own_only: bool = False) -> None:
        """Have blocks of a file fetched before they are asked for. Never waits. own_only: those whose home
        is here; of the others some will be read elsewhere."""
        if file.origin.reads_in_order(file.path):
            return
        is_new = False
        with self._work:
            number = first
            while number <= last:
                if own_only and self._homes and self._homes.source_of(file, number):
                    number += MERGED_BLOCKS - number % MERGED_BLOCKS
                    continue
                fetch = None if self._has(file, number) else self._add(file, number, last, True)
                number += 1 if fetch is None else fetch.num
                is_new |= fetch is not None
        if is_new:
            self._getter.wake()

    def wait_room_ahead(self, deadline: Deadline) -> bool:
        """Wait until more may be fetched ahead. Returns False if the deadline passes before; what
        nobody has read for long makes room then."""
        if not self._has_room_ahead():
            self.memory.drop_stale()
        with self._room:
            return self._room.wait_for(
                lambda: self._has_room_ahead() or self._is_closed.is_set(), deadline.left_s()
            )

    def _has_room_ahead(self) -> bool:
        return self._ahead_nbytes < min(self.memory.room_ahead_nbytes(), MAX_QUEUED_NBYTES)

    # -- fetches; all under the lock -------------------------------------------------------------

    def _has(self, file: File, number: int) -> bool:
        key = file.digest, number
        return (
            key in self._coming
            or self.memory.has(key)
            or (self.disk is not None and self.disk.has(key))
        )

    def _add(
        self, file: File, first: int, last: int, is_ahead: bool, source: Source | None = None
    ) -> Fetch:
        num = 1
        # Not beyond a multiple of 4 MiB: there another machine may be who is to be asked.
        most = MERGED_BLOCKS - first % MERGED_BLOCKS
        while num < most and first + num <= last and not self._has(file, first + num):
            num += 1
        asked = source or self._source_of(file, first)
        fetch = Fetch(file, first, num, is_ahead, asked, is_settled=source is not None)
        for number in range(first, first + num):
            self._coming[file.digest, number] = fetch
        self._queue_of(fetch).put(fetch)
        if is_ahead:
            self._ahead_nbytes += fetch.nbytes
        else:
            self._getter.wake()
        return fetch

    def _source_of(self, file: File, first: int) -> Source:
        home = self._homes and self._homes.source_of(file, first)
        return home or file.origin

    def _queue_of(self, fetch: Fetch) -> Queue:
        return self._to_origins if fetch.is_at_origin else self._to_peers

    def _forget(self, fetch: Fetch) -> None:
        for number in range(fetch.first, fetch.first + fetch.num):
            self._coming.pop((fetch.file.digest, number), None)
        if fetch.is_ahead:
            self._ahead_nbytes -= fetch.nbytes

    # -- fetchers --------------------------------------------------------------------------------

    def _next(self) -> Request | None:
        """Return a GET for the getter; what is none it leaves to the threads."""
        while self._to_origins.has_turn() or self._to_peers.has_turn():
            with self._work:
                fetch = self._take()
            if fetch is None:
                return None
            get = None
            with contextlib.suppress(Exception):  # the thread that tries again will be told
                get = fetch.source.get(*fetch.asked)
            if get is not None:
                self._queue_of(fetch).num_busy += 1
                self.stats.num_requests += fetch.is_at_origin
                return Request(get, partial(self._got, fetch))
            self._hand_to_thread(fetch)
        return None

    def _take(self) -> Fetch | None:
        """Return the next fetch; None if there is none, or none may be asked for now. Under the lock."""
        while True:
            # What somebody waits for has threads of its own: those that are fetched ahead may all be at
            # an origin that does not answer. The end of one wakes the getter.
            most = self._num_threads * (2 if self._to_origins.is_waited_for else 1)
            fetch = self._to_origins.take() if self._num_in_threads < most else None
            fetch = fetch or self._to_peers.take()
            if fetch is None or fetch.is_settled:
                return fetch
            queue = self._queue_of(fetch)
            fetch.source = self._source_of(fetch.file, fetch.first)
            if self._queue_of(fetch) is queue:
                return fetch
            self._queue_of(fetch).put(fetch)  # its home has come or gone since

    def _got(self, fetch: Fetch, answer: Answer | None) -> None:
        """Take a GET's answer; if there is none, or it is an error, a thread looks into it, with patience."""
        self._queue_of(fetch).num_busy -= 1
        is_origin = fetch.is_at_origin
        try:
            if answer is not None:
                piece = fetch.source.got(answer, *fetch.asked)
                self._end(fetch, partial(self._took, fetch, piece))
                return
        except Again:
            pass
        except Exception as error:
            if is_origin:
                self._fail(fetch, error)
                return
        if is_origin:
            self.stats.num_retries += 1
            self._hand_to_thread(fetch)
        else:
            self._ask_origin(fetch, answer)

    def _ask_origin(self, fetch: Fetch, answer: Answer | None) -> None:
        """Have the origin asked for what another machine has not sent."""
        if answer is None and self._homes is not None:
            self._homes.has_failed(fetch.source)
        with self._work:
            fetch.source, fetch.is_settled = fetch.file.origin, True
            self._to_origins.put(fetch, is_next=True)
        self._getter.wake()

    def _hand_to_thread(self, fetch: Fetch) -> None:
        with self._work:
            self._num_in_threads += 1
        self._pool.submit(self._fetch, fetch)

    def _fetch(self, fetch: Fetch) -> None:
        """Fetch by the origin's own ways, again and again within the time limit."""

        def ask() -> Piece:
            self.stats.num_requests += 1
            return fetch.file.origin.read(*fetch.asked)

        try:
            piece = patiently(ask, Deadline(self._limit_s), self._is_closed.wait, self._count_retry)
        except Exception as error:
            self._fail(fetch, error)
        else:
            self._end(fetch, partial(self._took, fetch, piece))
        with self._work:
            self._num_in_threads -= 1
        self._getter.wake()

    def _fail(self, fetch: Fetch, error: Exception) -> None:
        fetch.error = error
        self._on_error(fetch.file.origin.url_of(fetch.file.path), error)
        self._end(fetch, lambda: None)

    def _end(self, fetch: Fetch, take: Callable[[], None]) -> None:
        """Let go of a fetch, whatever has become of it: somebody waits."""
        try:
            take()
        except Exception as error:  # ours; it must not stop all others
            fetch.error = error
        with self._room:
            self._forget(fetch)
            fetch.has_come.set()
            if fetch.is_ahead:
                self._room.notify()
        if fetch.calls:
            fetch.call()

    def _took(self, fetch: Fetch, piece: Piece) -> None:
        file, whole = fetch.file, bytes(piece.body)  # no copy where it is bytes
        body = memoryview(whole)
        if file.nbytes == UNKNOWN:
            file = fetch.found = file_of(file.origin, file.path, piece.known)
        if fetch.is_at_origin:
            self.stats.remote_nbytes += len(body)
        else:
            self.stats.peer_nbytes += len(body)
        if fetch.is_ahead:
            self.stats.ahead_nbytes += len(body)
        size = file.block_nbytes
        for at in range(-(-len(body) // size)):
            data = whole if len(whole) <= size else bytes(body[at * size : (at + 1) * size])
            self._unread.add((file.digest, fetch.first + at))
            self.keep((file.digest, fetch.first + at), data)
            fetch.got[fetch.first + at] = data
        if fetch.found is not None:
            self._on_found(file)

    def keep(self, key: Key, data: bytes) -> None:
        """Keep a block where there is room."""
        is_kept = self.memory.add(key, data)
        if self.disk is not None and (not is_kept or self.disk.keeps):
            self.disk.add(key, data)

    def _count_retry(self, _why: Again) -> None:
        self.stats.num_retries += 1

    def close(self) -> None:
        """End the fetchers; what they fetch is lost, and who waits for it is told so. Idempotent."""
        if self._is_closed.is_set():
            return
        self._is_closed.set()
        self._getter.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._room:
            for fetch in self._coming.values():
                fetch.error = fetch.error or Again("the run ends")
                fetch.has_come.set()
                fetch.call()
            self._room.notify_all()


# Fetched ahead and on its way, or waiting to be: an epoch's first files shall not wait for its last.
MAX_QUEUED_NBYTES = 64 << 20
