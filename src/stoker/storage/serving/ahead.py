"""Fetches the files of samples that are about to be asked for, in the sampler's order.

Trainers tell files, or samples, far ahead; workers those of the batches that they have been given. One thread
looks them up and hands them to the fetchers while there is room.
Promise: never more ahead than memory has room for; a new epoch forgets the last one's rest.
"""

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from stoker.clock import Deadline
from stoker.storage.reading.blocks import Blocks
from stoker.storage.serving.mounted import Mounted

MAX_WAITING = 100_000  # files
AT_ONCE = 16  # files, between two looks at what else has come
WAIT_S = 0.1  # for room, until it is looked whether a batch has begun that needs none


class SampleFiles:
    """Which files samples have opened, by dataset (upcoming.name_of) and index. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards what is below
        self._of: dict[str, dict[Any, list[str]]] = {}

    def learn(self, dataset: str, opened: Iterable[tuple[Any, str]]) -> None:
        """Take in which files samples have opened: index and path."""
        found: dict[Any, dict[str, None]] = {}
        for index, path in opened:
            found.setdefault(_hashable(index), {})[path] = None
        with self._lock:
            known = self._of.setdefault(dataset, {})
            known.update((index, list(paths)) for index, paths in found.items())

    def files_of(self, dataset: str, indices: Iterable[Any]) -> list[str]:
        """Return what samples have opened before, in order."""
        with self._lock:
            known = self._of.get(dataset, {})
            return [path for index in indices for path in known.get(_hashable(index), ())]


def _hashable(index: Any) -> Any:
    return tuple(map(_hashable, index)) if isinstance(index, list) else index


class Ahead:
    def __init__(self, mounts: Sequence[Mounted], blocks: Blocks) -> None:
        self._mounts, self._blocks = mounts, blocks
        self._changed = threading.Condition()  # guards all below
        self._next: deque[str] = deque(maxlen=MAX_WAITING)  # of batches that are being made
        # By who told of them; who is served next comes first.
        self._later: dict[str, deque[str]] = {}
        self._has_begun: set[str] = set()
        self._settled: set[str] = set()  # paths that are kept whole, to the end
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="storage-ahead", daemon=True)
        self._thread.start()

    def add(self, who: str, paths: Iterable[str]) -> None:
        """Take what will be asked for, in order."""
        lacking = self._lacking(paths)
        if not lacking:
            return
        with self._changed:
            waiting = self._later.setdefault(who, deque())
            waiting.extend(itertools.islice(lacking, max(0, MAX_WAITING - len(waiting))))
            self._changed.notify()

    def add_next(self, paths: Iterable[str]) -> None:
        """Take what is about to be asked for."""
        lacking = self._lacking(paths)
        if lacking:
            with self._changed:
                self._next.extend(lacking)
                self._changed.notify()

    def _lacking(self, paths: Iterable[str]) -> list[str]:
        return [path for path in paths if path not in self._settled]

    def begin(self, who: str) -> None:
        """Forget what is not fetched yet of somebody's: another epoch has begun there."""
        with self._changed:
            self._later.pop(who, None)
            is_again = who in self._has_begun
            self._has_begun.add(who)
            self._changed.notify()
        if (
            self._blocks.disk is not None and is_again
        ):  # so others, as a validation's, had their turn
            self._blocks.disk.make_room()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._next or self._later or self._is_closed)
                if self._is_closed:
                    return
                is_next = bool(self._next)
            if is_next or self._blocks.wait_room_ahead(Deadline(WAIT_S)):
                for path in self._some(is_next):
                    self._fetch(path)

    def _some(self, is_next: bool) -> list[str]:
        """Take some: few enough that room for the first is room for all."""
        with self._changed:
            if is_next:
                return [self._next.popleft() for _ in range(min(AT_ONCE, len(self._next)))]
            if not self._later:  # forgotten meanwhile
                return []
            who = next(iter(self._later))
            waiting = self._later.pop(who)
            some = [waiting.popleft() for _ in range(min(AT_ONCE, len(waiting)))]
            if waiting:
                self._later[who] = waiting  # the others' turn first
            return some

    def _fetch(self, path: str) -> None:
        for mounted in self._mounts:
            if path.startswith(f"{mounted.path}/"):
                # The sample that asks for it will be told what is wrong with it.
                with contextlib.suppress(Exception):
                    if mounted.fetch_ahead(path[len(mounted.path) + 1 :]):
                        self._settled.add(path)
