"""Reports what was remembered of which dataset, and why not of others.

Owner: the trainer, whose workers write the counts.
"""

from stoker.memory.phases import Counts, depth_of, phase_of
from stoker.memory.store import own_shelf
from stoker.reports.metrics import Remembered, RememberedPlace


def remembered() -> Remembered | None:
    """Return what this process's shelf holds; None if it has none."""
    shelved = own_shelf()
    if shelved is None:
        return None
    places = [_place(name, why, counts) for name, why, counts in shelved.places().values()]
    return Remembered(shelved.budget_nbytes, shelved.used_nbytes(), places)


def _place(name: str, why: str, counts: Counts) -> RememberedPlace:
    phase, why = phase_of(counts, why)
    return RememberedPlace(
        place=name,
        phase=phase.value,
        depth=str(depth_of(counts) or "nothing"),
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
