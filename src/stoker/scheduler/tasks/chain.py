"""Computes the number of chains and their seeds: torch's workers, apart from their processes.

Promise: a chain's seeds are those that torch gives the worker of the same id.
Pure: standard library only.
"""


def num_chains(setting: str, num_workers: int, num_slots: int) -> int:
    """Return V, the number of chains of a loader.

    setting: `--chains` (script, auto or a number); num_workers: the script's own, >= 1; num_slots:
    processes that may run.
    """
    if setting == "script":
        return num_workers
    if setting == "auto":
        return max(num_workers, num_slots)
    return int(setting)


def worker_seed(base_seed: int, worker_id: int) -> int:
    """Return the seed of one worker's `random` and torch generators.

    base_seed: 64 bits, drawn once per loader iterator; worker_id: 0-based. Returns their sum.
    Raises ValueError on a negative id. NumPy is seeded otherwise: see numpy_entropy().
    Source: torch/utils/data/_utils/worker.py `_worker_loop`, 2.13.
    """
    if worker_id < 0:
        raise ValueError(f"worker_id must be >= 0, got {worker_id}")
    return base_seed + worker_id


def numpy_entropy(base_seed: int, worker_id: int) -> list[int]:
    """Return NumPy's SeedSequence entropy for the four words that torch seeds NumPy with.

    Source: torch/utils/data/_utils/worker.py `_generate_state`, 2.13, which restates SeedSequence;
    pinned by tests/unit/worker/test_seeding.py.
    """
    return [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
