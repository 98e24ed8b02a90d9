"""Makes whole samples twice from the same generator states, as the dataset does and by a cut of it,
and compares them.

Promise: what is handed out is the dataset's own sample, and the generators stand where that has left
them. Only for samples that leave no trace (watch/learn.py), for the second making is to show nowhere.
Owner: the worker's main thread.
"""

import hashlib
import pickle
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from stoker.memory import phases
from stoker.memory.cut import AnotherCallee, Reached
from stoker.memory.desk import Tally
from stoker.memory.phases import Counts, Phase
from stoker.memory.watch import Generators
from stoker.reports.digest import batch_sha256

Ways = tuple[int, ...]  # by which the halves of a cut go on, from the outside in


class Proof:
    """What one worker has seen of one dataset's cut, and others of the way that most samples take.
    by_chance: draws which kept samples are made anew, with states of its own."""

    def __init__(self, dataset: Any, tally: Tally) -> None:
        self._dataset, self._tally = dataset, tally
        self._num_alike: Counter[Ways] = Counter()
        self._num_needed = 1
        self._known_way = 0  # that all workers together have seen often enough
        self.by_chance = random.Random(random.SystemRandom().getrandbits(64))

    def begin(self) -> None:
        """Begin anew: of another depth, or in another epoch."""
        self._num_alike.clear()

    def refresh(self, known: Counts, phase: Phase) -> None:
        """Take in what other workers have seen."""
        self._num_needed = phases.num_alike(known, phase)
        self._known_way = known.way if known.num_alike >= self._num_needed else 0

    def is_begun(self, state: bytes) -> bool:
        """Whether enough samples were alike, in whatever way they went on. state: of the cut, and of
        all that its first half depends on."""
        is_known = self._known_way >> _WAY_BITS == _of_state(state)
        return is_known or self._num_alike.total() >= self._num_needed

    def is_trusted(self, state: bytes, reached: Reached) -> bool:
        """Whether enough samples were alike that went on as this one will. state: see `is_begun`."""
        ways = reached.ways()
        if self._num_alike[ways] < self._num_needed and self._known_way == _number(state, ways):
            self._num_alike[ways] = self._num_needed
        return self._num_alike[ways] >= self._num_needed

    def note_alike(self, state: bytes, reached: Reached) -> None:
        ways = reached.ways()
        self._num_alike[ways] += 1
        way, counts = _number(state, ways), self._tally.counts
        if way == counts.way:
            self._tally.put(num_alike=counts.num_alike + 1)
        elif counts.way >> _WAY_BITS != _of_state(state):
            self._tally.put(way=way, num_alike=1)

    def of(self, index: Any, generators: Generators, cut: Callable[[], Any]) -> "Verdict":
        """Compare what the dataset makes with what `cut` makes. Raises what the dataset raises."""
        before = generators.save()
        sample = self._dataset[index]
        after = generators.save()
        try:
            expected = _told(sample)
            generators.restore(before)
            is_alike = _told(cut()) == expected and generators.are_at(after)
        except AnotherCallee:
            return Verdict(sample, False)
        except _NotComparable as error:
            return Verdict(sample, False, why=f"a sample {error}")
        except Exception as error:
            return Verdict(sample, False, f"raised {type(error).__name__}")
        finally:
            generators.restore(after)
        return Verdict(sample, is_alike, "" if is_alike else "differed")

    def or_original(
        self, index: Any, generators: Generators, before: list[Any], cut: Callable[[], Any]
    ) -> tuple[Any, str]:
        """Return the sample that `cut` makes. Where that raises, the dataset makes it, from the states
        before; then what is wrong is returned too, if it is not the dataset that raises."""
        try:
            return cut(), ""
        except Exception as error:
            why = f"raised {type(error).__name__}"
        generators.restore(before)
        return self._dataset[index], why


_WAY_BITS = 48


def _number(state: bytes, ways: Ways) -> int:
    """Return 63 bits that tell a way from all others of whatever state; the first 15 are its state's."""
    told = hashlib.blake2b(state + repr(ways).encode(), digest_size=_WAY_BITS // 8).digest()
    return _of_state(state) << _WAY_BITS | int.from_bytes(told)


def _of_state(state: bytes) -> int:
    """Return 15 bits, and never 0."""
    return int.from_bytes(hashlib.blake2b(state, digest_size=2).digest()) >> 1 | 1


class Verdict(NamedTuple):
    """A sample as the dataset has made it, and whether the cut made the same. what: the cut's did
    where it did not; why: it cannot be compared. Neither is told where the cut called another function than
    it is a cut of."""

    sample: Any
    is_alike: bool
    what: str = ""
    why: str = ""


class _NotComparable(Exception):
    """A sample cannot be compared with another one; says why."""


def _told(sample: Any) -> str:
    """Return what tells a sample from all that differ. Raises _NotComparable."""
    try:
        pickle.dumps(sample)  # what cannot be pickled has no digest
    except Exception as error:
        raise _NotComparable(f"cannot be compared: {type(error).__name__}: {error}") from None
    return batch_sha256(sample)
