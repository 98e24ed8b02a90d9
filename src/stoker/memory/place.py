"""Serves samples of one dataset from the shelf, or makes and keeps them.

    get(index) -> learn (watch/) | find on the shelf and go on from there | make, then compare or keep

Promise: a sample is what the dataset would have made, and so are the generators after it; an error
is the dataset's own. Nothing of ours ever raises into the script: it costs speed, and is told once.
Owner: the worker's main thread.
"""

import functools
import hashlib
import operator
from collections.abc import Callable, Sequence
from typing import Any

from stoker.clock import now_s, thread_cpu_s, wall_ns
from stoker.fingerprint.fingerprint import Apart, Unwatchable
from stoker.memory import phases
from stoker.memory.cut import AnotherCallee, NotCuttable, Reached, Split, split_of
from stoker.memory.desk import Desk, is_dropped, tally_of
from stoker.memory.phases import Depth, Phase
from stoker.memory.prefix import Prefix, with_generators
from stoker.memory.store import (
    Kept,
    Key,
    NotStorable,
    Value,
    are_equal,
    encode,
    is_alone,
    key_of,
    told_of,
)
from stoker.memory.watch import (
    Finding,
    Identity,
    Lesson,
    Look,
    State,
    are_same,
    identities,
    is_traced,
    state_of,
)

_COMPARED = (0, 1, 4, 15)  # samples under watch, at which all that the dataset reaches is compared
_MAX_OPEN = 8  # samples under watch, of which those do not count that show where to look further
_REFRESH_EVERY = 64  # samples between two looks at what other workers have found
_LARGE_NBYTES = 1 << 20  # from here on a value is rather mapped than copied
MAX_MOVES = 2  # of what a prefix reaches, in one worker


class Place:
    """A dataset whose samples are remembered, in one worker."""

    def __init__(self, desk: Desk, dataset: Any, where: str) -> None:
        """where: inside torch's wrappers, from the loader's dataset on."""
        self._desk, self._dataset = desk, dataset
        self._tally = tally_of(desk, dataset, where)
        self._split = functools.cache(functools.partial(_split_of, dataset))
        self._prefix: Prefix | None = None
        self._depth: Depth | None = None
        self._look: Look = with_generators(desk.look, [])  # while it learns
        self._generators: list[Any] = []
        self._num_watched = 0  # samples, by this worker
        self._watched_s = 0.0
        self._compared_draw = -1  # first draw that was known when fingerprints were last compared
        self._num_proven = self._num_hits = 0  # by all workers
        self._num_unknown = 0  # samples that asked what nobody can ask again
        self._dropped = b""  # states of which a value differed, among which this one is not
        self._phase = Phase.OFF
        self._make_alone: Callable[[Any, Any], Any] = operator.getitem
        self._is_of_session = False
        if desk.stores.lasts:
            self._guarded(self._take_up)
        self._guarded(self._refresh)

    def get(self, index: Any) -> Any:
        """Return the sample of an index. Raises what the dataset raises."""
        if self._phase is Phase.OFF:
            return self._make_alone(self._dataset, index)
        if type(index) is not int and type(index) is not str and told_of(index) is None:
            self._leave(f"is asked for a sample by a {type(index).__qualname__}")
            return self._dataset[index]
        if is_traced():
            return self._dataset[index]  # a debugger or coverage sees the function itself
        way = self._guarded(self._way, index) or self._plain
        return way(index)

    # -- what is known -----------------------------------------------------------------------------

    def _take_up(self) -> None:
        """Begin with what an earlier run has learnt of this very dataset. Raises Unwatchable."""
        if self._tally.origin:
            return  # the first worker that met it has
        told = self._whole_state().lasting + repr(sorted(self._desk.trusted)).encode()
        if not self._tally.take_up(hashlib.blake2b(told, digest_size=16).digest()):
            self._leave("a sample differed when an earlier run made it again")

    def _refresh(self) -> None:
        """Take in what the workers have found so far. Raises Unwatchable, NotCuttable."""
        counts, why = self._tally.known()
        phase, why = phases.phase_of(counts, why)
        self._num_proven, self._num_hits = counts.num_proven, counts.num_hits
        self._is_of_session = counts.num_of_session > 0
        if phase is Phase.SERVING or counts.num_differed:
            self._tally.note_for_others(counts)
        if phase is Phase.SERVING and self._desk.audit:
            phase = Phase.PROVING
        if phase is Phase.OFF:
            split = self._split() if why == phases.AT_ONCE else None
            if isinstance(split, str):  # a step is then all of it
                why = f"draws random numbers, and cannot be split: {split}"
            self._leave(why)
        elif phase in (Phase.PROVING, Phase.SERVING) and phases.depth_of(counts) != self._depth:
            depth = phases.depth_of(counts)
            assert depth is not None  # or the phase were another
            split = None if depth.is_whole else self._split()
            look, lasts = self._desk.look, self._desk.stores.lasts
            self._prefix = Prefix(self._dataset, depth, split, look, phases.look_s(counts), lasts)
            self._dropped = b""
            self._depth = depth
        self._phase = phase
        self._tally.begin_phase(phase)

    def _has_restated(self) -> bool:
        """Compute the state anew; returns whether it is another one. Raises Unwatchable."""
        assert self._prefix is not None
        before = self._prefix.state
        self._restate()
        return self._phase is Phase.OFF or self._prefix.state != before

    def _is_dropped(self) -> bool:
        """Whether a value of this state differed, be it in another loader."""
        assert self._prefix is not None
        self._dropped = self._tally.dropped
        if is_dropped(self._prefix.state.now, self._dropped):
            self._leave("a sample of the same dataset differed when it was made again")
        return self._phase is Phase.OFF

    def _lasting(self) -> bytes:
        """Return what a value on disk is kept under beside its index; empty if it is not to be."""
        assert self._prefix is not None
        state, stores = self._prefix.state, self._desk.stores
        if not stores.lasts:
            return state.now if stores.has_disk else b""
        return b"" if self._is_of_session else state.lasting

    def _restate(self) -> None:
        """Raises Unwatchable."""
        assert self._prefix is not None
        self._prefix.restate()
        self._dropped = b""  # the state may be one of those
        if self._prefix.num_moves > MAX_MOVES:
            self._leave("what its samples depend on changes while they are made")

    def _retreat(self, why: str) -> None:
        """Remember a step less, for what is to be kept at this one cannot be; at the first one the
        place is left alone. Raises Unwatchable, NotCuttable."""
        split, depth = self._split(), self._depth
        less = None if isinstance(split, str) or depth is None else depth.less(split.num_steps)
        if less is None:
            self._leave(why)
            return
        self._tally.put(first_draw=less.first_draw)
        self._refresh()

    def _leave(self, why: str) -> None:
        """Leave the dataset alone from here on, and say why."""
        self._phase = Phase.OFF
        if not phases.are_cheap(self._tally.known()[0]):
            self._make_alone = self._desk.make_alone
        self._tally.say_why(why)

    def _guarded(self, ours: Callable[..., Any], *arguments: Any) -> Any:
        """Call what runs nothing of the script's; if it fails, the place is left alone."""
        try:
            return ours(*arguments)
        except NotStorable as error:
            self._guarded(self._retreat, f"its value {error}")
        except (Unwatchable, NotCuttable) as error:
            self._leave(str(error))
        except Exception as error:
            self._leave(f"stoker failed: {type(error).__name__}: {error}")
        return None

    # -- a sample ----------------------------------------------------------------------------------

    def _way(self, index: Any) -> Callable[[Any], Any]:
        """Return the function that makes the sample. Raises Unwatchable, and whatever fails."""
        if self._phase is Phase.TIMING:
            return self._time
        if self._phase is Phase.LEARNING:
            return functools.partial(self._learn, self._lesson())
        prefix = self._prefix
        assert prefix is not None
        if not prefix.is_met:
            return self._meet
        self._tally.num_calls += 1
        if self._tally.dropped != self._dropped and self._is_dropped():
            return self._plain
        key = key_of(prefix.state.now, self._lasting(), told_of(index))
        kept = self._desk.stores.find(key)
        if kept is None and not self._tally.wants_more(key, self._num_proven):
            return self._plain
        if prefix.is_to_restate(phases.look_frac(self._num_proven)) and self._has_restated():
            return self._plain
        num_hits = self._tally.num_hits
        if kept is not None and num_hits % _REFRESH_EVERY == 0:
            self._refresh()
            if self._prefix is not prefix or self._phase is Phase.OFF:
                return self._plain  # the key and the entry are of another depth
        if (
            kept is not None
            and self._phase is Phase.SERVING
            and not phases.must_check(self._num_hits, num_hits, key.now)
        ):
            reached = self._read(kept)
            if reached is not None:
                return functools.partial(self._serve, kept, reached)
            kept = None
        return functools.partial(self._make, key, kept)

    def _plain(self, index: Any) -> Any:
        """Make a sample that is neither kept nor compared."""
        began_s = now_s()
        sample = self._dataset[index]
        self._desk.worked_s += now_s() - began_s
        self._tally.make_plain()
        return sample

    def _serve(self, kept: Kept, reached: Reached, index: Any) -> Any:
        """Go on from what the shelf holds."""
        assert self._prefix is not None
        began_s = now_s()
        try:
            sample = self._prefix.go_on(index, reached, is_hit=True)
        except AnotherCallee:  # nothing of the second half has run
            return self._meet(index)
        self._tally.serve(kept.made_us)
        self._desk.worked_s += now_s() - began_s
        return sample

    def _meet(self, index: Any) -> Any:
        """Make a sample to see what its prefix calls; from then on that is in its reach."""
        assert self._prefix is not None
        reached = self._prefix.meet(index)
        self._guarded(self._restate)
        return self._prefix.go_on(index, reached)

    def _make(self, key: Key, kept: Kept | None, index: Any) -> Any:
        prefix, opened = self._prefix, self._desk.opened
        assert prefix is not None
        self._desk.watch_readers()
        before, began_ns, began_s = prefix.look(), wall_ns(), now_s()
        opened.begin()
        try:
            reached = self._desk.asked.run(prefix.run, index)
        finally:
            paths, trace = opened.end()
        made_s = now_s() - began_s
        has_drawn = prefix.look() != before
        if trace:
            self._leave(trace)
        has_imported = self._desk.watch_readers()  # then a file may have been opened unseen
        if has_imported:
            self._guarded(self._restate)  # a library may have told the environment something
        took_another = prefix.took_another()  # which may have drawn
        if trace or has_drawn or has_imported or took_another:
            self._tally.count(num_misses=1)
        else:
            self._guarded(self._settle, key, kept, index, reached, paths, began_ns, made_s)
        began_s = now_s()
        sample = prefix.go_on(index, reached)
        self._desk.worked_s += made_s + now_s() - began_s
        return sample

    # -- timing and learning -----------------------------------------------------------------------

    def _time(self, index: Any) -> Any:
        began_s = now_s()
        sample = self._dataset[index]
        took_s = now_s() - began_s
        self._desk.worked_s += took_s
        if self._tally.is_timed(took_s):
            self._guarded(self._refresh)
        return sample

    def _lesson(self) -> Lesson:
        self._desk.watch_readers()
        counts, _ = self._tally.known()
        if not self._num_watched:
            self._whole_state()  # also for the generators that it finds
        # Also when the place at which to compare is known better.
        compares = self._num_watched in _COMPARED or counts.first_draw != self._compared_draw
        profiles = phases.may_profile(counts, self._watched_s, phases.epoch_s(counts))
        state = None
        if compares:
            state, self._compared_draw = self._whole_state, counts.first_draw
        desk = self._desk
        return Lesson(self._look, desk.opened, state, counts.first_draw, profiles, desk.trusted)

    def _whole_state(self) -> State:
        """Return the state of all that the dataset reaches, but its generators."""
        apart = Apart()
        allowed_s = phases.look_s(self._tally.known()[0])
        lasts = self._desk.stores.lasts
        state = state_of({"dataset": self._dataset}, apart, allowed_s, lasts)
        if list(map(id, apart.generators)) != list(map(id, self._generators)):
            self._generators = apart.generators
            self._look = with_generators(self._desk.look, apart.generators)
        return state

    def _learn(self, lesson: Lesson, index: Any) -> Any:
        split, began_s = self._split(), now_s()
        steps = None if isinstance(split, str) else split
        sample, finding = lesson.make(self._dataset, index, steps)
        self._watched_s += now_s() - began_s
        self._num_watched += 1
        self._guarded(self._note, finding)
        return sample

    def _note(self, finding: Finding) -> None:
        first_draw = min(self._tally.counts.first_draw, phases.packed(finding.drew))
        self._tally.put(first_draw=first_draw)
        if finding.is_disturbed:
            self._compared_draw = -1
        is_counted = finding.is_final or self._num_watched > _MAX_OPEN
        self._tally.count(num_learnt=int(is_counted), num_of_session=int(finding.is_of_session))
        if finding.why:
            self._leave(finding.why)
        self._refresh()

    # -- the shelf ---------------------------------------------------------------------------------

    def _read(self, kept: Kept) -> Reached | None:
        """Return what is kept; None if that is damaged, or of files that have changed."""
        assert self._prefix is not None
        stores, copied, rows, memory = self._desk.stores, True, None, None
        if self._prefix.is_whole:
            rows = self._desk.rows
            copied = self._desk.copies or rows == {}  # the first: room is made for more like it
        elif kept.entry.nbytes >= _LARGE_NBYTES and self._prefix.may_map:
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

    def _settle(
        self,
        key: Key,
        kept: Kept | None,
        index: Any,
        reached: Reached,
        paths: Sequence[str],
        began_ns: int,
        made_s: float,
    ) -> None:
        """Compare what was made with what is kept of it, or keep it.

        Raises NotStorable. began_ns: when it began to be made, by the wall clock.
        """
        stores = self._desk.stores
        before_s = thread_cpu_s() + stores.wrote_s
        is_explained = self._desk.opened.is_explained
        told = identities(paths, began_ns) if is_explained else None
        there = self._desk.asked.identities(paths, began_ns)
        if told is None or there is None:
            self._tally.count(num_misses=1)
            self._num_unknown += self._desk.asked.is_unknown or not is_explained
            if self._num_unknown >= phases.NUM_TO_WEIGH and not self._tally.counts.num_made:
                asks = "asks for what lies at a path in a way that cannot be asked again"
                self._leave(asks if is_explained else "reads a file that it has not opened")
        else:
            told += there
            parts = self._encoded(told, reached)
            memory = None if kept is None else stores.memory_of(kept)
            if kept is not None and memory is not None and _is_of(memory, told):
                self._compare(index, key, kept, memory, parts)
            else:
                self._tally.keep(key, parts, made_s)
                if self._tally.is_to_weigh:
                    self._refresh()
        # Not by the clock on the wall: a task of another process in between ends nothing.
        self._desk.spent_s += thread_cpu_s() + stores.wrote_s - before_s

    def _encoded(self, told: Sequence[Identity], reached: Reached) -> list[memoryview]:
        """Raises NotStorable; also if a value that the script may change is not its own."""
        assert self._prefix is not None
        levels = reached.items()
        if not self._desk.copies and self._prefix.is_whole:
            return encode((list(told), *levels), in_rows=True)
        if not all(is_alone(values, name) for values in levels[1::3] for name in values):
            raise NotStorable("is held elsewhere too")
        foreign, is_whole = self._prefix.apart.memory, self._prefix.is_whole
        return encode((list(told), *levels), foreign, in_rows=is_whole)

    def _compare(
        self, index: Any, key: Key, kept: Kept, memory: memoryview, parts: list[memoryview]
    ) -> None:
        if not are_equal(parts, memory):
            self._tally.count(num_differed=1, num_checked=1)
            assert self._prefix is not None
            self._tally.drop(self._prefix.state.now)
            self._leave(f"sample {index!r} differed when it was made again")
            self._guarded(self._refresh)
            return
        is_proof = self._tally.is_proof(key, kept)
        self._tally.count(num_checked=1, num_hits=1, num_proven=int(is_proof))
        if self._phase is Phase.PROVING:
            self._refresh()


def _is_of(memory: memoryview, told: Sequence[Identity]) -> bool:
    """Whether a value is of these very files."""
    held = next(Value(memory).items(False))
    return [tuple(each) for each in held] == list(told)


def _split_of(dataset: Any) -> Split | str:
    """Return the dataset's `__getitem__` to be split, or why it cannot be."""
    try:
        return split_of(type(dataset).__getitem__)
    except NotCuttable as error:
        return str(error)
