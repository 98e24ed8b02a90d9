"""Keeps blocks in memory: those that are kept to the end, and those that wait for their one reader.

Promise: holds no more than its budget; a kept block is never dropped for another; a block with a
flipped bit is never returned.
Any thread may call it.
"""

import threading

from xxhash import xxh3_64_intdigest

from stoker.clock import now_s
from stoker.storage.reading.stats import StorageStats

Key = tuple[bytes, int]  # of a file, as it is named by its origin's tag; number of the block
# Of the budget, for blocks that were fetched ahead and find no room among those that are kept; no more than
# what half a second of 1 Gbit/s brings.
STAGE_FRAC, MAX_STAGE_NBYTES = 1 / 16, 64 << 20
STALE_S = 30.0


class Memory:
    def __init__(self, budget_nbytes: int, stats: StorageStats) -> None:
        self.stage_nbytes = min(int(budget_nbytes * STAGE_FRAC), MAX_STAGE_NBYTES)
        self._room_nbytes = budget_nbytes - self.stage_nbytes
        self._stats = stats
        self._lock = threading.Lock()  # guards all below
        self._kept: dict[Key, tuple[bytes, int]] = {}
        self._staged: dict[Key, tuple[bytes, int]] = {}
        self._staged_at_s: dict[Key, float] = {}
        self._staged_nbytes = 0
        self._kept_nbytes = 0

    def find(self, key: Key) -> bytes | None:
        """Return a block; None if it is not here, or was damaged and is gone now."""
        found = self._kept.get(key) or self._staged.get(key)
        if found is None:
            return None
        data, check = found
        if xxh3_64_intdigest(data) == check:
            return data
        self._stats.num_damaged += 1
        self.drop(key)
        return None

    def has(self, key: Key) -> bool:
        return key in self._kept or key in self._staged

    def keeps(self, key: Key) -> bool:
        """Whether a block is here to stay."""
        return key in self._kept

    def add(self, key: Key, data: bytes) -> bool:
        """Keep a block if there is room. Returns False if it only waits for its reader."""
        entry = data, xxh3_64_intdigest(data)
        with self._lock:
            if self.has(key):
                return key in self._kept
            if self._kept_nbytes + len(data) <= self._room_nbytes:
                self._kept[key] = entry
                self._kept_nbytes += len(data)
                self._stats.kept_nbytes = self._kept_nbytes
                return True
            self._staged[key] = entry
            self._staged_at_s[key] = now_s()
            self._staged_nbytes += len(data)
            # Fetched ahead, and never asked for: the oldest go.
            while self._staged_nbytes > self.stage_nbytes and len(self._staged) > 1:
                self._drop_staged(next(iter(self._staged)))
            return False

    def was_read(self, key: Key) -> bool:
        """Drop a block that waited for its reader: the kernel has its bytes now. Returns whether it did."""
        if key not in self._staged:
            return False
        with self._lock:
            self._drop_staged(key)
        return True

    def room_ahead_nbytes(self) -> int:
        """Return how many bytes may be fetched ahead now."""
        kept = self._room_nbytes - self._kept_nbytes
        return max(0, kept) + max(0, self.stage_nbytes - self._staged_nbytes)

    def drop(self, key: Key) -> None:
        with self._lock:
            found = self._kept.pop(key, None)
            if found is not None:
                self._kept_nbytes -= len(found[0])
                self._stats.kept_nbytes = self._kept_nbytes
            self._drop_staged(key)

    def drop_stale(self) -> None:
        """Drop what was fetched ahead and nobody has read for long: its epoch has ended early."""
        limit_s = now_s() - STALE_S
        with self._lock:
            for key in [key for key, at_s in self._staged_at_s.items() if at_s < limit_s]:
                self._drop_staged(key)

    def _drop_staged(self, key: Key) -> None:
        self._staged_at_s.pop(key, None)
        found = self._staged.pop(key, None)
        if found is not None:
            self._staged_nbytes -= len(found[0])
