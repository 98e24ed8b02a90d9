"""What is known of one dataset in one worker: the phase that it is in, and what its samples depend on.

Promise: nothing of ours ever raises into the script: it costs speed, and is told once.
Owner: the worker's main thread.
"""

import functools
import hashlib
import operator
from collections.abc import Callable
from typing import Any

from torch.utils.data import get_worker_info

from stoker.clock import now_s
from stoker.fingerprint.fingerprint import Apart, Unwatchable
from stoker.memory import phases
from stoker.memory.cut import NotCuttable, Split, split_of
from stoker.memory.desk import Desk, Tally, is_dropped, tally_of
from stoker.memory.phases import Depth, Phase
from stoker.memory.prefix import Prefix
from stoker.memory.proof import Proof
from stoker.memory.store import Key, NotStorable, key_of, told_of
from stoker.memory.watch import NO_STATE, Finding, Generators, Lesson, State, state_of

_COMPARED = (0, 1, 4, 15)  # samples under watch, at which all that the dataset reaches is compared
_MAX_OPEN = 8  # samples under watch, of which those do not count that show where to look further
MAX_MOVES = 2  # of what a prefix reaches, in one worker


class Learning:
    """Learns of a dataset's first samples: where they draw, and whether more than their index decides
    them. generators: that a sample may draw from, as far as is known."""

    def __init__(self, desk: Desk, dataset: Any, tally: Tally) -> None:
        self._desk, self._dataset, self._tally = desk, dataset, tally
        self.generators = Generators(desk.look, [])
        self._reached: list[Any] = []  # of these, what the dataset reaches
        self._num_watched = 0  # samples, by this worker
        self._watched_s = 0.0
        self._compared_draw = -1  # first draw that was known when fingerprints were last compared

    def state(self, leaves_scratch_out: bool = False) -> State:
        """Return the state of all that the dataset reaches, but its generators. Raises Unwatchable."""
        apart = Apart(leaves_scratch_out=leaves_scratch_out)
        allowed_s = phases.look_s(self._tally.known()[0])
        lasts = self._desk.stores.lasts
        state = state_of({"dataset": self._dataset}, apart, allowed_s, lasts)
        if list(map(id, apart.generators)) != list(map(id, self._reached)):
            self._reached = apart.generators
            self.generators = Generators(self._desk.look, apart.generators)
        return state

    def lesson(self) -> Lesson:
        """Return what watches the next sample. Raises Unwatchable."""
        desk, began_s = self._desk, now_s()
        desk.watch_readers()
        counts, _ = self._tally.known()
        if not self._num_watched:
            self.state()  # also for the generators that it finds
        # Also when the place at which to compare is known better.
        compares = self._num_watched in _COMPARED or counts.first_draw != self._compared_draw
        if compares:
            self._compared_draw = counts.first_draw
        profiles = phases.may_profile(counts, self._watched_s, phases.epoch_s(counts))
        state = self.state if compares else None
        look = self.generators.look
        lesson = Lesson(look, desk.opened, state, counts.first_draw, profiles, desk.trusted)
        self._tally.spend(learn_s=now_s() - began_s)
        return lesson

    def make(self, lesson: Lesson, index: Any, split: Split | None) -> tuple[Any, Finding]:
        """Return the sample and what was found. Raises what the dataset raises."""
        began_s = now_s()
        sample, finding = lesson.make(self._dataset, index, split)
        took_s = now_s() - began_s
        self._watched_s += took_s
        self._num_watched += 1
        self._tally.spend(learn_s=max(0.0, took_s - phases.sample_s(self._tally.known()[0])))
        return sample, finding

    def note(self, finding: Finding) -> None:
        """Count what was found, for all workers."""
        first_draw = min(self._tally.counts.first_draw, phases.packed(finding.drew))
        self._tally.put(first_draw=first_draw)
        if finding.is_disturbed:
            self._compared_draw = -1
        is_counted = finding.is_final or self._num_watched > _MAX_OPEN
        self._tally.count(num_learnt=int(is_counted), num_of_session=int(finding.is_of_session))


class Standing:
    """What one worker knows of a dataset."""

    def __init__(self, desk: Desk, dataset: Any, where: str) -> None:
        """where: inside torch's wrappers, from the loader's dataset on."""
        self._desk, self._dataset = desk, dataset
        self._tally = tally_of(desk, dataset, where)
        self._split = functools.cache(functools.partial(_split_of, dataset))
        self._prefix: Prefix | None = None
        self._depth: Depth | None = None
        self._learning = Learning(desk, dataset, self._tally)
        self._proof = Proof(dataset, self._tally)
        self._num_owed = 0  # kept samples to be made anew before one is served in this epoch
        self._num_stood_for = 0  # hits that those stand for, this worker's first ones
        self._num_proven = self._num_to_prove = self._num_hits = 0  # by all workers
        self._is_again = False  # an earlier run has proven what is kept
        self._dropped = b""  # states of which a value differed, among which this one is not
        self._phase = Phase.OFF
        self._make_alone: Callable[[Any, Any], Any] = operator.getitem
        self._is_of_session = False
        if desk.stores.lasts:
            self._guarded(self._take_up)
        self._guarded(self._refresh)

    def _take_up(self) -> None:
        """Begin with what an earlier run has learnt of this very dataset. Raises Unwatchable."""
        if self._tally.origin:
            return  # the first worker that met it has
        told = self._learning.state().lasting + repr(sorted(self._desk.trusted)).encode()
        if not self._tally.take_up(hashlib.blake2b(told, digest_size=16).digest()):
            self._leave("a sample differed when an earlier run made it again")

    def _refresh(self) -> None:
        """Take in what the workers have found so far. Raises Unwatchable, NotCuttable."""
        counts, why = self._tally.known()
        phase, why = phases.phase_of(counts, why)
        self._num_proven, self._num_hits = counts.num_proven, counts.num_hits
        self._num_to_prove, self._is_again = phases.num_to_prove(counts), counts.is_proven > 0
        self._is_of_session = counts.num_of_session > 0
        self._proof.refresh(counts, phase)
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
            look, lasts, began_s = self._desk.look, self._desk.stores.lasts, now_s()
            self._prefix = Prefix(self._dataset, depth, split, look, phases.look_s(counts), lasts)
            if not depth.is_whole:
                self._learning.state()  # for the generators that second halves draw from
            self._dropped = b""
            self._depth = depth
            self._tally.spend(learn_s=now_s() - began_s)
            self._begin_epoch()
        self._phase = phase
        self._tally.begin_phase(phase)

    def _begin_epoch(self) -> None:
        """Have samples made anew before one is served."""
        self._proof.begin()
        self._num_owed = phases.num_first(self._tally.known()[0])
        self._num_stood_for = self._tally.num_hits + self._num_owed * phases.FIRST_EVERY

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
        began_s = now_s()
        self._prefix.restate()
        self._tally.spend(learn_s=now_s() - began_s)
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
        if why != phases.LITTLE and not phases.are_cheap(self._tally.known()[0]):
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

    def _differ(self, index: Any, what: str) -> None:
        """Leave the dataset alone, and drop all that is kept of this state. Raises what `_refresh` does."""
        self._tally.count(num_differed=1, num_checked=1)
        assert self._prefix is not None
        if self._prefix.state != NO_STATE:
            self._tally.drop(self._prefix.state.now)
        self._leave(f"sample {index!r} {what} when it was made again")
        self._refresh()  # which tells other runs

    def _key_of(self, index: Any) -> Key:
        assert self._prefix is not None
        return key_of(self._prefix.state.now, self._lasting(), told_of(index))

    def _count_call(self) -> None:
        """Begin an epoch behind this worker's share of one, as nobody tells workers that live on."""
        num_before = self._tally.num_calls
        self._tally.num_calls += 1
        info = get_worker_info()
        num_of_epoch = self._tally.counts.num_samples // (1 if info is None else info.num_workers)
        if num_before and num_of_epoch and num_before % num_of_epoch == 0:
            self._begin_epoch()


def _split_of(dataset: Any) -> Split | str:
    """Return the dataset's `__getitem__` to be split, or why it cannot be."""
    try:
        return split_of(type(dataset).__getitem__)
    except NotCuttable as error:
        return str(error)
