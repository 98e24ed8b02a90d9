"""Reports what was remembered of which dataset, and why not of others.

Owner: the trainer, whose workers write the counts.
"""

from stoker.memory.desk import DECODER
from stoker.memory.phases import Counts, depth_of, of_files, phase_of
from stoker.memory.store import Shelf, own_shelf
from stoker.reports.metrics import DECODED, Remembered, RememberedOnDisk, RememberedPlace


def remembered() -> Remembered | None:
    """Return what this process's shelf holds; None if it has none."""
    shelved = own_shelf()
    if shelved is None:
        return None
    places = [_place(name, why, counts) for name, why, counts in shelved.places().values()]
    return Remembered(shelved.budget_nbytes, shelved.used_nbytes(), places, _disk(shelved))


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
    )
