"""Fetches the files of samples that are about to be asked for, in the sampler's order.

Trainers tell files, and parts of large ones, far ahead; workers those of the batches that they have been
given. One thread looks them up and hands them to the fetchers while there is room.
Promise: never more ahead than memory has room for; a new epoch forgets the last one's rest.
"""

import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Iterable, Sequence

from stoker.clock import Deadline
from stoker.storage.learning.learnt import Wanted
from stoker.storage.learning.line import Part
from stoker.storage.reading.blocks import Blocks
from stoker.storage.serving.mounted import Mounted

MAX_WAITING = 100_000  # files
AT_ONCE = 16  # files, between two looks at what else has come
WAIT_S = 0.1  # for room, until it is looked whether a batch has begun that needs none


class Ahead:
    def __init__(self, mounts: Sequence[Mounted], blocks: Blocks) -> None:
        self._mounts, self._blocks = mounts, blocks
        self._changed = threading.Condition()  # guards all below
        self._next: deque[Wanted] = deque(maxlen=MAX_WAITING)  # of batches that are being made
        # By who told of them; who is served next comes first.
        self._later: dict[str, deque[Wanted]] = {}
        self._has_begun: set[str] = set()
        self._settled: set[str] = set()  # paths that are kept whole, to the end
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="storage-ahead", daemon=True)
        self._thread.start()

    def add(self, who: str, wanted: Iterable[Wanted]) -> None:
        """Take what will be asked for, in order."""
        lacking = self._lacking(wanted)
        if not lacking:
            return
        with self._changed:
            waiting = self._later.setdefault(who, deque())
            waiting.extend(itertools.islice(lacking, max(0, MAX_WAITING - len(waiting))))
            self._changed.notify()

    def add_next(self, wanted: Iterable[Wanted]) -> None:
        """Take what is about to be asked for."""
        lacking = self._lacking(wanted)
        if lacking:
            with self._changed:
                self._next.extend(lacking)
                self._changed.notify()

    def _lacking(self, wanted: Iterable[Wanted]) -> list[Wanted]:
        return [each for each in wanted if each.path not in self._settled]

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
                for each in self._some(is_next):
                    self._fetch(*each)

    def _some(self, is_next: bool) -> list[Wanted]:
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

    def _fetch(self, path: str, part: Part | None) -> None:
        for mounted in self._mounts:
            if path.startswith(f"{mounted.path}/"):
                # The sample that asks for it will be told what is wrong with it.
                with contextlib.suppress(Exception):
                    if mounted.fetch_ahead(path[len(mounted.path) + 1 :], part):
                        self._settled.add(path)
