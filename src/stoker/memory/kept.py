"""Reads kept values of one dataset's samples, and compares with them what was made anew, or keeps that.

Promise: what is read was kept under exactly this key, of files that are still the same.
Owner: the worker's main thread.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from stoker.clock import thread_cpu_s
from stoker.memory import phases
from stoker.memory.cut import Reached
from stoker.memory.desk import Desk, Tally
from stoker.memory.prefix import Prefix
from stoker.memory.store import Kept, Key, NotStorable, Value, are_equal, encode, is_alone
from stoker.memory.watch import Identity, are_same, identities

_LARGE_NBYTES = 1 << 20  # from here on a value is rather mapped than copied


class Made(NamedTuple):
    """What a prefix has made. paths: of the files that it opened; began_ns: when, by the wall clock."""

    reached: Reached
    paths: Sequence[str]
    began_ns: int
    made_s: float


class Settled(NamedTuple):
    """What became of it. has_compared: it is what is kept; why: no sample is to be kept from here on."""

    has_differed: bool = False
    has_compared: bool = False
    why: str = ""


class KeptValues:
    def __init__(self, desk: Desk, tally: Tally) -> None:
        self._desk, self._tally = desk, tally
        self._num_unknown = 0  # samples that asked what nobody can ask again

    def read(self, prefix: Prefix, kept: Kept) -> Reached | None:
        """Return what is kept; None if that is damaged, or of files that have changed."""
        stores, copied, rows, memory = self._desk.stores, True, None, None
        if prefix.is_whole:
            rows = self._desk.rows
            copied = self._desk.copies or rows == {}  # the first: room is made for more like it
        elif kept.entry.nbytes >= _LARGE_NBYTES and prefix.may_map:
            memory = stores.own_memory_of(kept)
            copied = memory is None
        if memory is None:
            memory = stores.memory_of(kept)
        if memory is None:
            return None
        items = Value(memory).items(copied, rows)
        if not are_same(next(items)):
            return None
        self._desk.serves = True
        return Reached.of_items(list(items))

    def settle(self, prefix: Prefix, key: Key, kept: Kept | None, made: Made) -> Settled:
        """Compare what was made with what is kept of it, or keep it. Raises NotStorable."""
        desk, stores = self._desk, self._desk.stores
        before_s = thread_cpu_s() + stores.wrote_s
        is_explained = desk.opened.is_explained
        told = identities(made.paths, made.began_ns) if is_explained else None
        there = desk.asked.identities(made.paths, made.began_ns)
        settled = Settled()
        if told is None or there is None:
            settled = self._miss(is_explained)
        else:
            told += there
            parts = self._encoded(prefix, told, made.reached)
            memory = None if kept is None else stores.memory_of(kept)
            if kept is not None and memory is not None and _is_of(memory, told):
                settled = self._compare(key, kept, memory, parts)
            else:
                self._tally.keep(key, parts, made.made_s)
        # Not by the clock on the wall: a task of another process in between ends nothing.
        self._tally.spend_on_value(thread_cpu_s() + stores.wrote_s - before_s)
        return settled

    def _miss(self, is_explained: bool) -> Settled:
        """Count a sample of which it is not known which files it is of."""
        self._tally.count(num_misses=1)
        self._num_unknown += self._desk.asked.is_unknown or not is_explained
        if self._num_unknown < phases.NUM_TO_WEIGH or self._tally.counts.num_made:
            return Settled()
        asks = "asks for what lies at a path in a way that cannot be asked again"
        return Settled(why=asks if is_explained else "reads a file that it has not opened")

    def _encoded(
        self, prefix: Prefix, told: Sequence[Identity], reached: Reached
    ) -> list[memoryview]:
        """Raises NotStorable; also if a value that the script may change is not its own."""
        levels: list[Any] = reached.items()
        if not self._desk.copies and prefix.is_whole:
            return encode((list(told), *levels), for_batch=True)
        if not all(is_alone(values, name) for values in levels[1::3] for name in values):
            raise NotStorable("is held elsewhere too")
        return encode((list(told), *levels), prefix.apart.memory)

    def _compare(
        self, key: Key, kept: Kept, memory: memoryview, parts: list[memoryview]
    ) -> Settled:
        if not are_equal(parts, memory):
            return Settled(has_differed=True)
        is_proof = self._tally.is_proof(key, kept)
        self._tally.count(num_checked=1, num_hits=1, num_proven=int(is_proof))
        return Settled(has_compared=True)


def _is_of(memory: memoryview, told: Sequence[Identity]) -> bool:
    """Whether a value is of these very files."""
    held = next(Value(memory).items(False))
    return [tuple(each) for each in held] == list(told)
