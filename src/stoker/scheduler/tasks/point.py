"""Where a chain can be taken up again: what a worker tells, and another begins with.

Pure: standard library only.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Point:
    """After the task `task_id` of a map-style chain, with these generators.

    Good for any process whose dataset has the same `fingerprint`.
    """

    task_id: int
    generators: bytes
    fingerprint: bytes
    drew: bool  # whether the chain has drawn from a global generator since it was seeded
    task_s: float  # mean time of a task so far
    watch_s: float  # CPU time that the fingerprint took


@dataclass(frozen=True, slots=True)
class SavedPoint:
    """Where an iterable was, before the batches that `proofs` are the digests of."""

    state: bytes = field(repr=False)
    generators: bytes = field(repr=False)
    proofs: tuple[bytes, ...] = field(repr=False)
