"""Defines points, from which a replacement worker can take up a chain again.

Pure: standard library only.
"""

from typing import NamedTuple


class Point(NamedTuple):
    """The state of a map-style chain after the task `task_id`: these generators.

    Good for any process whose dataset has the same `fingerprint`.
    """

    task_id: int
    generators: bytes
    fingerprint: bytes
    drew: bool  # whether the chain has drawn from a global generator since it was seeded
    task_s: float  # mean time of a task so far
    watch_s: float  # CPU time that the fingerprint took


class SavedPoint(NamedTuple):
    """The saved state of an iterable. proofs: digests of the batches that came after it."""

    state: bytes
    generators: bytes
    proofs: tuple[bytes, ...]

    def __repr__(self) -> str:  # the state may be of any size
        return "SavedPoint()"
