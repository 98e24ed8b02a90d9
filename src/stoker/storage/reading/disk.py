"""Keeps blocks in files, for this run and, if asked, for the next: the folder and the room of --cache-disk.

Promise: what fails costs speed, and nothing is written after it; a damaged block is a miss; a write
that was cut short by a crash is one, too.
Owner of all writes: one thread of its own. Any thread may read.
"""

import contextlib
import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path

from xxhash import xxh3_64_intdigest

from stoker.kept_files import SLOT_NBYTES, Entry, KeptFiles, read_slot, slot_of, write_at
from stoker.storage.reading.memory import Key
from stoker.storage.reading.stats import StorageStats

_BLOCKS, _INDEX = ".blocks", ".blockindex"
_SEAT = 0  # one process writes
_MAX_EARLIER = 256  # runs' files, of which each takes a descriptor
_MAX_INDEX_NBYTES = 96 << 20  # of all of them: 2 million blocks
_LOOK_EVERY_NBYTES = 64 << 20  # written, between two looks at what other runs have written
_MAX_WAITING = 256  # blocks; what comes while the disk is that far behind is not kept


class Disk:
    """Raises OSError where the folder cannot be made, or is not safe."""

    def __init__(
        self,
        path: Path,
        nbytes: int,
        keeps: bool,
        stats: StorageStats,
        say: Callable[[str], None],
    ) -> None:
        self._budget_nbytes, self.keeps, self._stats, self._say = nbytes, keeps, stats, say
        self.files = KeptFiles(path, nbytes, _BLOCKS, _INDEX)
        self._where: dict[bytes, tuple[int, Entry]] = {}  # descriptor and place of a block
        self._tail = self._num_slots = 0
        self._is_full = False
        self._read_fds: set[int] = set()  # of earlier runs' files
        self._earlier: dict[int, str] = {}  # files of earlier runs that no block was read from yet
        if keeps:
            for name, slots in self.files.earlier(_MAX_EARLIER, _MAX_INDEX_NBYTES):
                self._load(name, slots)
        self._values_fd, self._index_fd = self.files.open_new(self.files.name_of(_SEAT), keeps)
        self._others_nbytes = self.files.used_nbytes()
        self._waiting: queue.Queue[tuple[Key, bytes] | threading.Event | None] = queue.Queue(
            _MAX_WAITING
        )
        self._writer = threading.Thread(target=self._write_all, name="storage-disk", daemon=True)
        self._writer.start()

    def _load(self, name: str, slots: bytes) -> None:
        fd = self.files.open_values(name)
        if fd is None:
            return
        self._earlier[fd] = name
        for at in range(0, len(slots), SLOT_NBYTES):
            found = read_slot(slots[at : at + SLOT_NBYTES])
            if found is None:
                return
            self._where[found[0]] = fd, found[1]

    def find(self, key: Key) -> bytes | None:
        """Return a block; None if it is not here, or was damaged and is forgotten now."""
        digest = digest_of(key)
        found = self._where.get(digest)
        if found is None:
            return None
        fd, entry = found
        if self._earlier.pop(fd, None) is not None:
            self._read_fds.add(fd)
        try:
            data = os.pread(fd, entry.nbytes, entry.offset) if self.files.has(fd, entry) else b""
        except OSError:
            data = b""
        if len(data) == entry.nbytes and xxh3_64_intdigest(data) & 0xFFFFFFFF == entry.check:
            return data
        self._stats.num_damaged += 1
        self._where.pop(digest, None)
        return None

    def has(self, key: Key) -> bool:
        return digest_of(key) in self._where

    def add(self, key: Key, data: bytes) -> None:
        """Have a block written soon, if there is room. Never waits."""
        if not self._is_full:
            with contextlib.suppress(queue.Full):
                self._waiting.put_nowait((key, data))

    def make_room(self) -> None:
        """Remove what this run has not read, if there was no room for more; when an epoch is over."""
        if self._is_full and self._earlier:
            gone, self._earlier = self._earlier, {}
            self._where = {key: at for key, at in self._where.items() if at[0] not in gone}
            for fd, name in gone.items():
                self.files.remove_pair(name)
                os.close(fd)
            with contextlib.suppress(OSError):
                own = self._tail + self._num_slots * SLOT_NBYTES
                self._others_nbytes = max(self.files.used_nbytes() - own * self.keeps, 0)
                self._is_full = False

    def flush(self) -> None:
        """Wait until all that waits is written."""
        is_written = threading.Event()
        self._waiting.put(is_written)
        is_written.wait()

    def close(self) -> None:
        """Write what waits, and close the files."""
        self._waiting.put(None)
        self._writer.join()
        fds = {self._values_fd, self._index_fd, *self._earlier, *self._read_fds}
        for fd in fds | {fd for fd, _ in self._where.values()}:
            with contextlib.suppress(OSError):
                os.close(fd)
        self._where.clear()

    # -- the writer's ----------------------------------------------------------------------------

    def _write_all(self) -> None:
        while (each := self._waiting.get()) is not None:
            if isinstance(each, threading.Event):
                each.set()
                continue
            if self._is_full or self.has(each[0]):
                continue
            try:
                self._write(*each)
            except OSError as error:
                self._is_full = True
                self._say(f"nothing more is kept in {self.files.path}: {error.strerror or error}")

    def _write(self, key: Key, data: bytes) -> None:
        own = self._tail + self._num_slots * SLOT_NBYTES
        if own + self._others_nbytes + len(data) + SLOT_NBYTES > self._budget_nbytes:
            self._is_full = True
            return
        entry = Entry(self._tail, len(data), 0, 0, xxh3_64_intdigest(data) & 0xFFFFFFFF)
        digest = digest_of(key)
        write_at(self._values_fd, memoryview(data), self._tail)
        write_at(
            self._index_fd, memoryview(slot_of(digest, entry)), self._num_slots * SLOT_NBYTES
        )  # last: a block that was not written whole has no slot
        self._where[digest] = self._values_fd, entry
        before, self._tail = self._tail, self._tail + len(data)
        self._num_slots += 1
        self._stats.disk_kept_nbytes += len(data)
        if before // _LOOK_EVERY_NBYTES != self._tail // _LOOK_EVERY_NBYTES:
            with contextlib.suppress(OSError):
                total = self.files.used_nbytes()
                self._others_nbytes = max(total - own, 0) if self.keeps else total


def digest_of(key: Key) -> bytes:
    """Return the 16 bytes under which an index knows a block."""
    file, number = key
    return file[:8] + (int.from_bytes(file[8:16], "little") ^ number).to_bytes(8, "little")
