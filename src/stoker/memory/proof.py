"""Makes whole samples twice from the same generator states, as the dataset does and by a cut of it,
and compares them.

Promise: what is handed out is the dataset's own sample, and the generators stand where that has left
them. Only for samples that leave no trace (watch/learn.py), for the second making is to show nowhere.
Owner: the worker's main thread.
"""

import pickle
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from stoker.memory import phases
from stoker.memory.cut import AnotherCallee, Reached
from stoker.memory.phases import Phase
from stoker.memory.watch import Generators
from stoker.reports.digest import batch_sha256

Ways = tuple[int, ...]  # by which the halves of a cut go on, from the outside in


class Proof:
    """What one worker has seen of one dataset's cut. by_chance: draws which kept samples are made
    anew, with states of its own."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._num_alike: Counter[Ways] = Counter()
        self.by_chance = random.Random(random.SystemRandom().getrandbits(64))

    def begin(self) -> None:
        """Begin anew: of another depth, or in another epoch."""
        self._num_alike.clear()

    def is_begun(self, phase: Phase) -> bool:
        """Whether enough samples were alike, in whatever way they went on."""
        return self._num_alike.total() >= _num_alike(phase)

    def is_trusted(self, reached: Reached, phase: Phase) -> bool:
        """Whether enough samples were alike that went on as this one will."""
        return self._num_alike[reached.ways()] >= _num_alike(phase)

    def note_alike(self, reached: Reached) -> None:
        self._num_alike[reached.ways()] += 1

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


def _num_alike(phase: Phase) -> int:
    return phases.NUM_ALIKE_AGAIN if phase is Phase.SERVING else phases.NUM_ALIKE


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
