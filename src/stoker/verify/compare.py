"""Compares two runs batch by batch: whether they are equal, and if not, where and why not.

Promise: of several differences the earliest in the order of delivery is named: a generator that
moved otherwise comes before the batches that it spoils. A side that was cut short is compared as
far as it goes; a side that ended by itself must hold all that the other holds.
Pure.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from stoker.verify.record import Batch, Finding, LoaderTrail, ProcessTrail, Side

# Kinds of findings, the likeliest first. Where a plain run equals the next, what differs by
# chance is the less likely reason: what tells one process from another comes first.
IF_PLAIN_DIFFERS = ("entropy", "timing", "clock", "thread", "process", "address", "folder")
IF_ONLY_OURS_DIFFERS = ("process", "timing", "thread", "entropy", "clock", "address", "folder")
_WHERE = ("dataset", "loop", "library")
MAX_REASONS = 3
FAR = 1 << 62  # after every batch

T = TypeVar("T")


class Difference(NamedTuple):
    """A difference between two runs. order: of the first batch that shows it; what: a sentence
    without a full stop; short: the same for a table; loader: whose code may hold the reason;
    is_lack: one side has less, which an early end would explain.
    """

    order: int
    what: str
    short: str = ""
    loader: LoaderTrail | None = None
    is_lack: bool = False


class Row(NamedTuple):
    """A loader's line in the table. offload: of the other side."""

    rank: str
    place: str
    num_compared: int
    offload: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict on two runs. first: the earliest difference; None: equal, as far as compared."""

    rows: list[Row]
    first: Difference | None

    @property
    def num_compared(self) -> int:
        return sum(row.num_compared for row in self.rows)


def compare(plain: Side, other: Side, name: str) -> Verdict:
    """Compare two runs of a command. name: of the other one, as in "3 batches under stoker"."""
    rows: list[Row] = []
    differences: list[Difference] = []
    for one, two in _paired(plain.processes, other.processes, _looks_of_process):
        if one is not None and two is not None:
            pair = _Pair(one, two, _is_cut(one, plain), _is_cut(two, other), name)
            for row, difference in pair.compared():
                rows.append(row)
                differences += [difference] if difference else []
        elif not (plain if one is None else other).met_limit:
            differences.append(_lone_process(one, two, name))
    return Verdict(rows, _first(differences, plain.exit_code, other.exit_code, name))


def likely_reasons(difference: Difference, plain_differs: bool) -> list[Finding]:
    """Return what most likely made the difference, the likeliest first; at most MAX_REASONS."""
    kinds = IF_PLAIN_DIFFERS if plain_differs else IF_ONLY_OURS_DIFFERS
    findings = difference.loader.findings if difference.loader else []
    ranked = sorted(findings, key=lambda f: (_WHERE.index(f.where), kinds.index(f.kind)))
    return ranked[:MAX_REASONS]


def _first(
    differences: list[Difference], code: int | None, other_code: int | None, name: str
) -> Difference | None:
    if None not in (code, other_code) and code != other_code:
        what = f"the command ends with exit code {code} plain and {other_code} {name}"
        differences = [one for one in differences if not one.is_lack] + [Difference(FAR, what)]
    return min(differences, key=lambda one: one.order, default=None)


def _is_cut(process: ProcessTrail, side: Side) -> bool:
    """Whether a process was ended early: neither by itself, nor because it had seen enough."""
    return process.stopped == "limit" or (side.exit_code is None and not process.stopped)


def _lone_process(one: ProcessTrail | None, two: ProcessTrail | None, name: str) -> Difference:
    found = one or two
    assert found is not None
    loader = found.loaders[0] if found.loaders else None
    where = f"{found.name} of {' '.join(found.argv) or 'the command'}"
    where += f", rank {found.rank}," if found.rank else ""
    what = f"{where} iterates a loader only {'plain' if two is None else name}"
    return Difference(FAR, what, loader=loader, is_lack=True)


class _Pair:
    """The same process on both sides."""

    def __init__(
        self, plain: ProcessTrail, other: ProcessTrail, plain_cut: bool, other_cut: bool, name: str
    ) -> None:
        self._plain, self._other = plain, other
        self._plain_cut, self._other_cut = plain_cut, other_cut
        self._name = name

    def compared(self) -> Iterator[tuple[Row, Difference | None]]:
        pairs = _paired(self._plain.loaders, self._other.loaders, _looks_of_loader)
        for one, two in pairs:
            if one is None or two is None:
                yield self._lone_loader(one, two)
            else:
                yield self._loader(one, two)

    def _loader(self, one: LoaderTrail, two: LoaderTrail) -> tuple[Row, Difference | None]:
        num_compared = min(len(one.batches), len(two.batches))
        difference = self._first_difference(one, two)
        row = Row(self._plain.rank, one.place, num_compared, two.offload, "equal")
        if difference is not None:
            row = row._replace(verdict=difference.short)
        elif not num_compared:
            row = row._replace(verdict="nothing to compare")
        return row, difference

    def _first_difference(self, one: LoaderTrail, two: LoaderTrail) -> Difference | None:
        for k, (a, b) in enumerate(zip(one.batches, two.batches, strict=False), 1):
            difference = _difference(a, b, f"batch {k:,}", one.place, self._name)
            if difference is not None:
                return difference._replace(loader=two)
        return self._lack(one, two)

    def _lack(self, one: LoaderTrail, two: LoaderTrail) -> Difference | None:
        num_plain, num_other = len(one.batches), len(two.batches)
        shorter, cut = (
            (self._plain, self._plain_cut)
            if num_plain < num_other
            else (self._other, self._other_cut)
        )
        if num_plain == num_other or cut or shorter.stopped:
            return None
        longer = two if num_plain < num_other else one
        short = f"{num_plain:,} batches plain, {num_other:,} {self._name}"
        order = longer.batches[min(num_plain, num_other)].order
        return Difference(order, f"{one.place} gives {short}", short, two, is_lack=True)

    def _lone_loader(
        self, one: LoaderTrail | None, two: LoaderTrail | None
    ) -> tuple[Row, Difference | None]:
        found = one or two
        assert found is not None
        offload = two.offload if two is not None else "-"
        row = Row(self._plain.rank, found.place, 0, offload, "not reached before the limit")
        if self._plain_cut if one is None else self._other_cut:
            return row, None
        only = "plain" if two is None else self._name
        order = found.batches[0].order if found.batches else FAR
        short = f"iterated only {only}"
        difference = Difference(order, f"{found.place} is {short}", short, found, is_lack=True)
        return row._replace(verdict=short), difference


def _difference(a: Batch, b: Batch, batch: str, place: str, name: str) -> Difference | None:
    """Compare a plain batch with the other side's of that number; None: equal. batch: "batch 3"."""
    if a.epoch != b.epoch:
        what = f"{batch} of {place} is in epoch {a.epoch} plain, in epoch {b.epoch} {name}"
        return Difference(a.order, what, f"another epoch at {batch}")
    if a.sha256 != b.sha256:
        what = f"{batch} (epoch {a.epoch}) of {place} is not the same {name}"
        return Difference(a.order, what, f"different at {batch}")
    moved = [g for g in a.generators if b.generators.get(g, a.generators[g]) != a.generators[g]]
    if moved:
        which = f"the training process's {' and '.join(moved)} generator"
        what = f"{which} after {batch} (epoch {a.epoch}) of {place} is not the same {name}"
        return Difference(a.order, what, f"{' and '.join(moved)} generator differs after {batch}")
    return None


def _looks_of_process(process: ProcessTrail) -> object:
    return process.rank, process.argv, process.name


def _looks_of_loader(loader: LoaderTrail) -> object:
    return loader.place, loader.looks


def _paired(
    ones: Iterable[T], twos: Iterable[T], looks: Callable[[T], object]
) -> Iterator[tuple[T | None, T | None]]:
    """Pair those that look alike, in order; None beside those that have no partner."""
    waiting: dict[object, list[T]] = {}
    for two in twos:
        waiting.setdefault(looks(two), []).append(two)
    for one in ones:
        alike = waiting.get(looks(one))
        yield one, alike.pop(0) if alike else None
    for alone in waiting.values():
        yield from ((None, two) for two in alone)
