"""Reports what was remembered of which dataset, and why not of others.

Owner: the trainer, whose workers write the counts; those of other machines tell it theirs.
"""

from collections.abc import Iterable
from typing import Protocol

from stoker.memory.desk import DECODER
from stoker.memory.phases import DIFFERED_AWAY, EMPTY, Counts, added, depth_of, of_files, phase_of
from stoker.memory.store import Shelf, own_shelf
from stoker.reports.metrics import DECODED, Remembered, RememberedOnDisk, RememberedPlace


class Told(Protocol):
    """What another machine has told of a place: see remote/trainer/fleet.py."""

    @property
    def key(self) -> bytes: ...
    @property
    def name(self) -> str: ...
    @property
    def why(self) -> str: ...
    @property
    def counts(self) -> tuple[int, ...]: ...
    @property
    def is_there(self) -> bool: ...


def remembered(away: Iterable[Told] = (), num_sharing: int = 1) -> Remembered | None:
    """Return what this process's shelf holds, and those of other machines; None if there is none.
    num_sharing: see Remembered."""
    shelved = own_shelf()
    found = {} if shelved is None else shelved.places()
    away_nbytes = 0
    for each in away:
        counts = _counts(each.counts)
        away_nbytes += counts.stored_nbytes if each.is_there else 0
        _, why_here, here = found.get(each.key, ("", "", EMPTY))
        found[each.key] = each.name, why_here or each.why, added([here, counts])
    if shelved is None and not found:
        return None
    places = [_place(*told) for told in found.values()]
    if shelved is None:
        return Remembered(0, 0, away_nbytes, places)
    return Remembered(
        shelved.budget_nbytes,
        shelved.used_nbytes(),
        away_nbytes,
        places,
        _disk(shelved),
        num_sharing,
    )


def leave_alone_here(away: Iterable[Told]) -> None:
    """Have places left alone on this machine of which a sample has differed on another one."""
    shelved = own_shelf()
    if shelved is not None:
        differed_there = [each for each in away if _counts(each.counts).num_differed]
        shelved.leave_alone({each.key: each.why or DIFFERED_AWAY for each in differed_there})


def _counts(numbers: tuple[int, ...]) -> Counts:
    """Return what another machine has counted; EMPTY if those are other numbers."""
    return Counts(*numbers) if len(numbers) == len(EMPTY) else EMPTY


def differed() -> list[tuple[bytes, str, str]]:
    """Return key and name of places on this process's shelf of which a sample has differed, and why
    they are left alone."""
    shelved = own_shelf()
    found = {} if shelved is None else shelved.places()
    return [(key, name, why) for key, (name, why, counts) in found.items() if counts.num_differed]


def _disk(shelved: Shelf) -> RememberedOnDisk | None:
    disk = shelved.disk
    if disk is not None:
        return RememberedOnDisk(disk.path, disk.budget_nbytes, disk.used_nbytes(), disk.why)
    if shelved.why_no_disk:
        return RememberedOnDisk("", 0, 0, shelved.why_no_disk)
    return None


def _place(name: str, why: str, counts: Counts) -> RememberedPlace:
    is_decoder = name.startswith(DECODER)
    phase, why = phase_of(of_files(counts) if is_decoder else counts, why)
    return RememberedPlace(
        place=name,
        phase=phase.value,
        depth=DECODED if is_decoder else str(depth_of(counts) or "nothing"),
        why=why,
        num_samples=counts.num_samples,
        num_hits=counts.num_hits,
        num_misses=counts.num_misses,
        num_stored=counts.num_stored,
        num_checked=counts.num_checked,
        num_differed=counts.num_differed,
        stored_nbytes=counts.stored_nbytes,
        saved_s=counts.saved_us / 1e6,
        learn_s=counts.learn_us / 1e6,
        prove_s=counts.prove_us / 1e6,
        write_s=counts.write_us / 1e6,
    )
