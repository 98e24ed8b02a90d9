"""Serves values of one function from the shelf, or has them made and keeps them.

    get(work) -> learn (watch/) | find on the shelf | make, then compare or keep

Promise: a value is what the function would have returned; what it raises is its own. Nothing of
ours ever raises into the script. A value is kept only if its file had been left alone before it was
read, and the making drew nothing random, opened no other file and warned of nothing.
Owner: the worker's main thread.
"""

import contextlib
import functools
import hashlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from stoker.clock import now_s, thread_cpu_s, wall_ns
from stoker.fingerprint.modes import is_unheard
from stoker.memory import phases
from stoker.memory.decoders.work import Work
from stoker.memory.desk import DECODER, Desk, Tally, is_dropped
from stoker.memory.phases import Phase
from stoker.memory.store import Kept, Key, NotStorable, Value, are_equal, encode, key_of
from stoker.memory.watch import Evidence, Identity, codecs, foundations, is_settled
from stoker.stack import passed_over

_REFRESH_EVERY = 64  # calls between two looks at what other workers have found
_Way = Callable[[Work], Any]


class Decoder:
    """A function whose values are remembered, in one worker. name: as a script writes it."""

    def __init__(self, desk: Desk, name: str) -> None:
        self._desk, self._name = desk, name
        told = DECODER.encode() + name.encode()
        key = hashlib.blake2b(desk.loader + told, digest_size=16).digest()
        self._tally = Tally(desk, key, DECODER + name)
        self._state = hashlib.blake2b(told, digest_size=16).digest()  # of all loaders
        self._dropped = b""  # states of which a value differed, among which this one is not
        self._watched_s = 0.0
        self._num_odd = 0
        self._has_compared = False  # a kept value, since this worker began
        self._num_proven = self._num_hits = 0  # by all workers
        self._phase = Phase.OFF
        self._lasting = foundations() + codecs() if desk.stores.has_disk else b""
        self._guarded(self._take_up)

    @property
    def is_off(self) -> bool:
        return self._phase is Phase.OFF

    @passed_over
    def get(self, work: Work) -> Any:
        """Return the value of a call. Raises what the function raises."""
        way: _Way | None = None
        if self._phase is not Phase.OFF:
            way = self._guarded(self._way, work)
        return work.make() if way is None else way(work)

    def wants(self, work: Work) -> bool:
        """Whether a call that is about to come would be served, or its value looked at, kept or
        compared. One that would not is counted: it need not come."""
        return self._phase is not Phase.OFF and bool(self._guarded(self._wants, work))

    def _wants(self, work: Work) -> bool:
        if self._phase in (Phase.TIMING, Phase.LEARNING):
            return True
        key = self._key_of(work)
        if self._desk.stores.find(key) is not None or self._wants_more(key):
            return True
        self._count_call()
        self._tally.make_plain()
        return False

    # -- what is known -----------------------------------------------------------------------------

    def _take_up(self) -> None:
        """Begin with what an earlier run has learnt of this function, in these libraries."""
        desk = self._desk
        if desk.stores.lasts and not self._tally.origin:  # else the first worker has
            # Of this loader: what its files and calls are like, others need not know.
            told = self._lasting + desk.loader + DECODER.encode() + self._name.encode()
            if not self._tally.take_up(hashlib.blake2b(told, digest_size=16).digest()):
                self._leave("a value differed when an earlier run made it again")
            # Its files may be others than that run's: the first ones are watched again.
            self._tally.put(num_learnt=0)
        self._refresh()

    def _refresh(self) -> None:
        """Take in what the workers have found so far."""
        counts, why = self._tally.known()
        self._phase, why = phases.phase_of(phases.of_files(counts), why)
        if self._phase is Phase.SERVING or counts.num_differed:
            self._tally.note_for_others(counts)
        self._num_proven, self._num_hits = counts.num_proven, counts.num_hits
        if self._phase is Phase.SERVING and self._desk.audit:
            self._phase = Phase.PROVING
        self._tally.begin_phase(self._phase)
        if self._phase is Phase.OFF:
            self._leave(why)

    def _leave(self, why: str) -> None:
        """Leave the function alone from here on, and say why."""
        self._phase = Phase.OFF
        self._tally.say_why(why)

    def _guarded(self, ours: Callable[..., Any], *arguments: Any) -> Any:
        """Call what runs nothing of the script's; if it fails, the function is left alone."""
        try:
            return ours(*arguments)
        except NotStorable as error:
            self._tally.count(num_misses=1)
            self._num_odd += 1
            if self._num_odd >= phases.NUM_TO_WEIGH and not self._tally.counts.num_made:
                self._leave(f"its value {error}")
        except Exception as error:
            self._leave(f"stoker failed: {type(error).__name__}: {error}")
        return None

    # -- a call ------------------------------------------------------------------------------------

    def _way(self, work: Work) -> _Way | None:
        """Return the function that gives the value; None: nothing is to be done about it."""
        self._count_call()
        if self._phase is Phase.TIMING:
            return self._time
        if self._phase is Phase.LEARNING:
            return self._learn
        if self._phase is Phase.OFF:
            return None
        key = self._key_of(work)
        kept = self._desk.stores.find(key)
        if kept is None:
            wants_more = self._wants_more(key)
            return functools.partial(self._make, key, None) if wants_more else self._plain
        num_hits = self._tally.num_hits
        must_check = phases.must_check(self._num_hits, num_hits, key.now)
        if self._phase is Phase.SERVING and self._has_compared and not must_check:
            found = self._read(kept, work)
            if found:
                self._tally.serve(kept.made_us)
                return lambda work: found[0]
        return functools.partial(self._make, key, kept)

    def _count_call(self) -> None:
        self._tally.num_calls += 1
        if self._tally.num_calls % _REFRESH_EVERY == 0:
            self._refresh()
        if self._tally.dropped != self._dropped:
            self._dropped = self._tally.dropped
            if is_dropped(self._state, self._dropped):
                self._leave("one of its values differed when it was made again")

    def _key_of(self, work: Work) -> Key:
        return key_of(b"", self._lasting, (self._name, work.told))

    def _wants_more(self, key: Key) -> bool:
        self._desk.worked_s = max(self._desk.worked_s, thread_cpu_s())
        return self._tally.wants_more(key, self._num_proven)

    def _read(self, kept: Kept, work: Work) -> list[Any]:
        """Return a list of the value that is kept; an empty one if that is damaged, or of a file that
        has changed."""
        memory = self._desk.stores.memory_of(kept)
        if memory is None:
            return []
        items = Value(memory).items(work.takes_copy)
        return [work.serve(next(items))] if _is_of(next(items), work.identify()) else []

    @passed_over
    def _plain(self, work: Work) -> Any:
        """Have a value made that is neither kept nor compared."""
        self._tally.make_plain()
        return work.make()

    @passed_over
    def _time(self, work: Work) -> Any:
        began_s = now_s()
        value = work.make()
        if self._tally.is_timed(now_s() - began_s):
            self._guarded(self._refresh)
        return value

    @passed_over
    def _learn(self, work: Work) -> Any:
        """Have a value made under watch."""
        found: list[str] = []
        opened, began_s = self._desk.opened, now_s()
        self._desk.watch_readers()
        known, _ = self._tally.known()
        profiles = phases.may_profile(known, self._watched_s, thread_cpu_s())
        evidence = Evidence(found.append if profiles else None, self._desk.trusted)
        before = self._desk.look()
        opened.begin()
        for path in work.paths:  # it explains the bytes that are read, whoever opens it
            opened.note(path)
        evidence.begin()
        try:
            value = work.make()
        finally:
            evidence.end()
            paths, trace = opened.end()
        self._watched_s += now_s() - began_s
        if self._desk.look() != before:
            found.insert(0, "draws random numbers")
        if evidence.is_of_session and self._desk.stores.lasts:
            found.append("reads a variable of this terminal or job alone")
        asked = evidence.asked + evidence.asked_kind
        if any(work.paths.isdisjoint(each) for each in asked):
            found.append("asks for a file's status")
        if not self._desk.watch_readers():  # else a library was used for the first time
            self._guarded(self._note, (found or [trace or _others(paths, work)])[0])
        return value

    def _note(self, why: str) -> None:
        self._tally.put(first_draw=phases.packed(()))
        self._tally.count(num_learnt=1)
        if why:
            self._leave(why)
        self._refresh()

    @passed_over
    def _make(self, key: Key, kept: Kept | None, work: Work) -> Any:
        """Have a value made, and compare it with what is kept of it, or keep it."""
        opened, look = self._desk.opened, self._desk.look
        before, began_ns, began_s = look(), wall_ns(), now_s()
        opened.begin(counts_bytes=False)
        num_modules = len(sys.modules)
        with _warnings() as heard:
            try:
                holder = [work.make()]
            finally:
                paths, trace = opened.end()
        made_s = now_s() - began_s
        is_clean = not trace and not _others(paths, work) and look() == before
        if not is_clean or heard or len(sys.modules) != num_modules:
            self._tally.count(num_misses=1)
        else:
            self._guarded(self._settle, key, kept, work, holder, began_ns, made_s)
        return holder[0]

    # -- the shelf ---------------------------------------------------------------------------------

    def _settle(
        self,
        key: Key,
        kept: Kept | None,
        work: Work,
        holder: list[Any],
        began_ns: int,
        made_s: float,
    ) -> None:
        """Compare a value with what is kept of it, or keep it. Raises NotStorable.

        holder: of the value, which nothing else holds; began_ns: by the wall clock.
        """
        stores = self._desk.stores
        before_s = thread_cpu_s() + stores.wrote_s
        told = work.identify()
        if told is None or not all(is_settled(each, began_ns) for each in told):
            self._tally.count(num_misses=1)
            return
        payload = work.payload(holder)
        parts = encode((list(told), payload))  # which view the payload's memory
        memory = None if kept is None else self._desk.stores.memory_of(kept)
        if kept and memory and _is_of(next(Value(memory).items(False)), told):
            self._compare(key, work, kept, memory, parts)
        else:
            self._keep(key, parts, made_s)
        self._tally.spend_on_value(thread_cpu_s() + stores.wrote_s - before_s)

    def _keep(self, key: Key, parts: list[memoryview], made_s: float) -> None:
        self._tally.keep(key, parts, made_s)
        if self._tally.is_to_weigh:
            self._refresh()

    def _compare(
        self, key: Key, work: Work, kept: Kept, memory: memoryview, parts: list[memoryview]
    ) -> None:
        if not are_equal(parts, memory):
            self._tally.count(num_differed=1, num_checked=1)
            self._tally.drop(self._state)
            name = min(work.paths, default="a value")
            self._leave(f"{name} differed when it was read again")
            self._guarded(self._refresh)  # which tells other runs
            return
        self._has_compared = True
        is_proof = self._tally.is_proof(key, kept)
        self._tally.count(num_checked=1, num_hits=1, num_proven=int(is_proof))
        if self._phase is Phase.PROVING:
            self._refresh()


@contextlib.contextmanager
def _warnings() -> Iterator[list[object]]:
    """Give a list to which each warning is added that somebody may hear."""
    warn, heard = warnings.warn, list[object]()

    def counted(
        message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **more: Any
    ) -> None:
        if not is_unheard(sys._getframe(1)):
            heard.append(message)
        # By one frame more, this one, except where frames are passed over by their files.
        stacklevel = stacklevel if more else max(stacklevel, 1) + 1
        warn(message, category, stacklevel, source, **more)

    warnings.warn = counted
    try:
        yield heard
    finally:
        warnings.warn = warn


def _is_of(held: Any, told: tuple[Identity, ...] | None) -> bool:
    return told is not None and [tuple(each) for each in held] == list(told)


def _others(paths: list[str], work: Work) -> str:
    """Say that other files were opened, if there were any."""
    others = [path for path in paths if path not in work.paths]
    return f"opens {others[0]} too" if others else ""
