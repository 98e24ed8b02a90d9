"""Defines points, from which a replacement worker can take up a chain again.

Pure: standard library only.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Point:
    """The state of a map-style chain after the task `task_id`: these generators.

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
    """The saved state of an iterable. proofs: digests of the batches that came after it."""

    state: bytes = field(repr=False)
    generators: bytes = field(repr=False)
    proofs: tuple[bytes, ...] = field(repr=False)
