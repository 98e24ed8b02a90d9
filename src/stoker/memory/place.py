"""Serves samples of one dataset from the shelf, or makes and keeps them.

    get(index) -> learn (watch/) | find on the shelf and go on from there | make, then compare or keep

Promise: a sample is what the dataset would have made, and so are the generators after it; an error
is the dataset's own. Nothing of ours ever raises into the script: it costs speed, and is told once.
Owner: the worker's main thread.
"""

import functools
from collections.abc import Callable
from typing import Any

from stoker.clock import now_s, wall_ns, work_s
from stoker.memory import phases
from stoker.memory.cut import AnotherCallee, Reached
from stoker.memory.desk import Desk
from stoker.memory.kept import KeptValues, Made
from stoker.memory.phases import Phase
from stoker.memory.prefix import Prefix
from stoker.memory.proof import Verdict
from stoker.memory.standing import Standing
from stoker.memory.store import (
    Kept,
    Key,
    have_made,
    told_of,
)
from stoker.memory.watch import (
    Finding,
    Lesson,
    is_traced,
)

_REFRESH_EVERY = 64  # samples between two looks at what other workers have found
_MAX_DRAWS = 64  # for one that is kept


class Place(Standing):
    """A dataset whose samples are remembered, in one worker."""

    def __init__(self, desk: Desk, dataset: Any, where: str) -> None:
        """where: inside torch's wrappers, from the loader's dataset on."""
        super().__init__(desk, dataset, where)
        self._kept = KeptValues(desk, self._tally)

    def get(self, index: Any) -> Any:
        """Return the sample of an index. Raises what the dataset raises."""
        if self._phase is Phase.OFF:
            return self._make_alone(self._dataset, index)
        if type(index) is not int and type(index) is not str and told_of(index) is None:
            self._leave(f"is asked for a sample by a {type(index).__qualname__}")
            return self._dataset[index]
        if is_traced():
            return self._dataset[index]  # a debugger or coverage sees the function itself
        self._guarded(self._count_call)
        return self._made(index)

    # -- a sample ----------------------------------------------------------------------------------

    def _made(self, index: Any) -> Any:
        way = self._guarded(self._way, index) or self._plain
        return way(index)

    def _way(self, index: Any) -> Callable[[Any], Any]:
        """Return the function that makes the sample. Raises Unwatchable, and whatever fails."""
        if self._phase is Phase.TIMING:
            return self._time
        if self._phase is Phase.LEARNING:
            if self._tally.num_calls == 1:
                return self._plain  # it may open what stays open then
            return functools.partial(self._learn, self._learning.lesson())
        prefix = self._prefix
        assert prefix is not None
        if prefix.has_imported:  # a library may have told the environment something
            self._restate()
            if self._phase is Phase.OFF:
                return self._plain
        if not prefix.is_met:
            return self._meet
        if self._tally.dropped != self._dropped and self._is_dropped():
            return self._plain
        key = self._key_of(index)
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
        if kept is not None and self._owes_proof():
            by_chance = self._by_chance(index)
            return self._make_way(key, kept) if by_chance is None else by_chance
        if (
            kept is not None
            and self._phase is Phase.SERVING
            and (
                num_hits < self._num_stood_for
                or not phases.must_check(self._num_hits, num_hits, key.now)
            )
        ):
            reached = self._kept.read(prefix, kept)
            if reached is not None and self._is_trusted(reached):
                return functools.partial(self._serve, kept, reached)
            kept = None if reached is None else kept
        is_audit = self._phase is Phase.SERVING or self._desk.audit
        return self._make_way(key, kept, is_audit=kept is not None and is_audit)

    def _make_way(
        self, key: Key, kept: Kept | None, is_audit: bool = False
    ) -> Callable[[Any], Any]:
        """is_audit: have whole samples compared, and not only what is kept."""
        assert self._prefix is not None
        if self._prefix.is_whole:
            return functools.partial(self._make, key, kept)
        proves = is_audit or not self._proof.is_begun(self._prefix.told)
        return functools.partial(self._prove if proves else self._make_by_cut, key, kept)

    def _is_trusted(self, reached: Reached) -> bool:
        assert self._prefix is not None
        return self._prefix.is_whole or self._proof.is_trusted(self._prefix.told, reached)

    def _plain(self, index: Any) -> Any:
        """Make a sample that is neither kept nor compared."""
        began_s = work_s()
        sample = self._dataset[index]
        took_s = work_s() - began_s
        self._desk.worked_s += took_s
        self._tally.make_plain()
        if self._prefix is not None and not self._prefix.is_whole:
            self._tally.whole_s.append(took_s)
            if self._tally.leaves_little:
                self._leave(phases.LITTLE)
        return sample

    def _serve(self, kept: Kept, reached: Reached, index: Any) -> Any:
        """Go on from what the shelf holds."""
        assert self._prefix is not None
        began_s = now_s()
        try:
            sample = self._go_on(self._prefix, index, reached)
        except AnotherCallee:  # nothing of the second half has run
            return self._meet(index)
        self._tally.serve(kept.made_us)
        self._desk.worked_s += now_s() - began_s
        return sample

    def _go_on(
        self, prefix: Prefix, index: Any, reached: Reached, before: list[Any] | None = None
    ) -> Any:
        """Run the second half; where it raises, the dataset makes the sample. before: where the generators
        stood before the first half; None of a hit, which has none."""
        if prefix.is_whole:
            return prefix.go_on(index, reached)
        generators, began_s = self._learning.generators, work_s()
        cut = functools.partial(prefix.go_on, index, reached, is_hit=before is None)
        sample, why = self._proof.or_original(index, generators, before or generators.save(), cut)
        if why:
            self._guarded(self._differ, index, why)
        else:
            self._tally.left_s.append(work_s() - began_s)
        return sample

    def _meet(self, index: Any) -> Any:
        """Make a sample, and see what its prefix calls; from then on that is in its reach."""
        prefix = self._prefix
        assert prefix is not None

        def meet() -> Any:
            return prefix.go_on(index, prefix.meet(index))

        verdict = self._proof.of(index, self._learning.generators, meet)
        self._guarded(self._restate)
        self._heed(index, verdict)
        return verdict.sample

    def _make(self, key: Key, kept: Kept | None, index: Any) -> Any:
        """Make a sample of which all is remembered."""
        began_s = now_s()
        reached = self._first_half(key, kept, index)
        self._note_made(began_s, is_again=kept is not None)
        return reached.values[""]

    def _make_by_cut(self, key: Key, kept: Kept | None, index: Any) -> Any:
        """Make a sample of which a part is remembered."""
        began_s, prefix = now_s(), self._prefix  # which may be another one afterwards
        assert prefix is not None
        generators = self._learning.generators
        before = generators.save()
        told = prefix.told
        first_half = functools.partial(self._first_half, key, kept, index)
        reached, why = self._proof.or_original(index, generators, before, first_half)
        if why:
            self._guarded(self._differ, index, why)
            return reached  # the dataset's sample
        if self._proof.is_trusted(told, reached):
            sample = self._go_on(prefix, index, reached, before)
            self._note_made(began_s, is_again=kept is not None)
            return sample
        generators.restore(before)
        return self._prove(key, kept, index)

    def _prove(self, key: Key, kept: Kept | None, index: Any) -> Any:
        """Make a sample by the dataset and by the cut, which goes on from what is kept if it can."""
        prefix = self._prefix
        if prefix is None or self._phase is Phase.OFF:
            return self._dataset[index]
        told = prefix.told
        went_on_from: list[Reached] = []

        def cut() -> Any:
            made = self._first_half(key, kept, index)
            found = None if kept is None else self._guarded(self._kept.read, prefix, kept)
            went_on_from.append(found or made)
            return prefix.go_on(index, went_on_from[0], is_hit=found is not None)

        began_s = now_s()
        verdict = self._proof.of(index, self._learning.generators, cut)
        self._note_made(began_s, is_again=kept is not None, is_proof=True)
        if verdict.is_alike:
            self._proof.note_alike(told, went_on_from[0])
        self._heed(index, verdict)
        return verdict.sample

    def _note_made(self, began_s: float, is_again: bool, is_proof: bool = False) -> None:
        """Count the time of a sample. is_again: it was kept; is_proof: it was made twice."""
        took_s = now_s() - began_s
        self._desk.worked_s += took_s
        if is_again:
            self._tally.spend(prove_s=took_s)
        elif is_proof:
            self._tally.spend(prove_s=max(0.0, took_s - phases.sample_s(self._tally.known()[0])))

    def _heed(self, index: Any, verdict: Verdict) -> None:
        if verdict.what:
            self._guarded(self._differ, index, verdict.what)
        elif verdict.why:
            self._leave(verdict.why)
        elif not verdict.is_alike and self._prefix is not None:
            self._prefix.forget()  # it is to meet what is called now

    def _first_half(self, key: Key, kept: Kept | None, index: Any) -> Reached:
        """Run the first half under watch, and compare what it reaches with what is kept, or keep it."""
        prefix, opened = self._prefix, self._desk.opened
        assert prefix is not None
        self._desk.watch_readers()
        before, began_ns, began_s = prefix.look(), wall_ns(), work_s()
        opened.begin()
        try:
            reached: Reached = self._desk.asked.run(prefix.run, index)
            have_made(reached.items()[1::3])
        finally:
            paths, trace = opened.end()
        made_s = work_s() - began_s
        has_drawn = prefix.look() != before
        if trace:
            self._leave(trace)
        has_imported = self._desk.watch_readers()  # then a file may have been opened unseen
        took_another = prefix.took_another()  # which may have drawn
        # By another process, or by this very sample.
        has_moved = not prefix.apart.shared.is_as_it_was
        if trace or has_drawn or has_imported or took_another or has_moved:
            self._tally.count(num_misses=1)
        else:
            made = Made(reached, paths, began_ns, made_s)
            self._guarded(self._settle, prefix, key, kept, index, made)
        return reached

    def _settle(self, prefix: Prefix, key: Key, kept: Kept | None, index: Any, made: Made) -> None:
        """Raises NotStorable, and what `_refresh` raises."""
        settled = self._kept.settle(prefix, key, kept, made)
        if settled.has_differed:
            self._differ(index, "differed")
        elif settled.why:
            self._leave(settled.why)
        elif self._tally.is_to_weigh or (kept is not None and self._phase is Phase.PROVING):
            if settled.has_compared and self._phase is Phase.PROVING:
                self._num_owed -= 1
            self._refresh()

    # -- samples that nobody asked for -------------------------------------------------------------

    def _owes_proof(self) -> bool:
        """Whether kept samples are to be made anew before one is served."""
        if self._phase is Phase.SERVING:
            return self._num_owed > 0
        return self._is_again and self._num_proven < self._num_to_prove

    def _by_chance(self, index: Any) -> Callable[[Any], Any] | None:
        """Return what makes the sample behind others, drawn by chance; None if it is to be made anew
        itself: every other one of an epoch's first, and where no other one is found."""
        self._num_owed -= 1
        is_its_turn = self._phase is Phase.SERVING and self._num_owed % 2
        if is_its_turn or type(index) is not int or self._drawn() is None:
            return None
        return self._after_others

    def _drawn(self) -> tuple[int, Key, Kept] | None:
        """Draw a kept sample from the whole dataset."""
        for _ in range(_MAX_DRAWS if self._tally.counts.num_samples else 0):
            index = self._proof.by_chance.randrange(self._tally.counts.num_samples)
            key = self._key_of(index)
            kept = self._desk.stores.find(key)
            if kept is not None:
                return index, key, kept
        return None

    def _after_others(self, index: Any) -> Any:
        is_at_start = self._phase is Phase.PROVING
        for _ in range(phases.NUM_AT_ONCE if is_at_start else 1):
            drawn = self._guarded(self._drawn)
            if self._phase is not Phase.OFF and drawn is not None:
                self._make_for_nobody(*drawn)
        return self._made(index) if self._phase is Phase.SERVING else self._plain(index)

    def _make_for_nobody(self, index: int, key: Key, kept: Kept) -> None:
        """Make a kept sample anew, only to be compared."""
        generators = self._learning.generators
        before, rows = generators.save(), self._desk.rows
        self._desk.rows = None
        try:
            self._make_way(key, kept)(index)
        except Exception:  # the dataset's: nobody has asked for it
            self._num_owed -= 1
        finally:
            generators.restore(before)
            self._desk.rows = rows

    # -- timing and learning -----------------------------------------------------------------------

    def _time(self, index: Any) -> Any:
        began_s = work_s()
        sample = self._dataset[index]
        took_s = work_s() - began_s
        self._desk.worked_s += took_s
        self._tally.is_timed(took_s)
        self._guarded(self._refresh)  # others may have timed enough
        return sample

    def _learn(self, lesson: Lesson, index: Any) -> Any:
        split = self._split()
        sample, finding = self._learning.make(
            lesson, index, None if isinstance(split, str) else split
        )
        self._guarded(self._note, finding)
        return sample

    def _note(self, finding: Finding) -> None:
        self._learning.note(finding)
        if finding.why:
            self._leave(finding.why)
        self._refresh()
