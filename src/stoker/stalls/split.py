"""Splits the time of steps by what the training thread did. Pure.

Waiting and all else are measured (intercept/meter.py); what all else was is known by samples (sampler.py), whose
shares are taken of the measured time.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Seen(NamedTuple):
    """Seconds that samples stand for. own_s, hidden_s: of the time in iter() and next(), hidden: while the GPU computed; the others: of
    that between two."""

    own_s: float = 0.0
    copy_s: float = 0.0
    compute_s: float = 0.0
    communication_s: float = 0.0
    other_s: float = 0.0
    hidden_s: float = 0.0

    def plus(self, more: "Seen") -> "Seen":
        return Seen(*(a + b for a, b in zip(self, more, strict=True)))

    def of(self, num: int) -> "Seen":
        """Return the mean of so many steps."""
        return Seen(*(part_s / num for part_s in self))

    def minus(self, less: "Seen") -> "Seen":
        return Seen(*(a - b for a, b in zip(self, less, strict=True)))


class Split(NamedTuple):
    """Says where the time of steps went, in seconds; all of it together is the time of the steps.

    data_s: waited for a batch, and so did the device; own_s: stoker's own work for it; copy_s: to the device; communication_s: with other
    ranks; compute_s: the model, its gradients, the optimizer, and waiting for the device; other_s: the script's
    Python; unseen_s: all but waiting, where nothing was seen of it.
    """

    data_s: float
    own_s: float
    copy_s: float
    communication_s: float
    compute_s: float
    other_s: float
    unseen_s: float


WORDS = {
    "data_s": "waiting for data",
    "own_s": "stoker's own work",
    "copy_s": "copies to the device",
    "communication_s": "waiting for other ranks",
    "compute_s": "the model",
    "other_s": "other Python",
    "unseen_s": "all else",
}


def lost_s(wait_s: float, hidden_s: float) -> float:
    """Return how long the loop waited in vain: not while the GPU still computed."""
    return max(0.0, wait_s - hidden_s)


def split_of(wait_s: float, busy_s: float, seen: Seen) -> Split:
    """Return the split of steps that waited so long, and did something else so long."""
    vain_s = lost_s(wait_s, seen.hidden_s)
    hidden_s, own_s = wait_s - vain_s, min(seen.own_s, vain_s)
    data_s = vain_s - own_s
    all_seen_s = seen.copy_s + seen.compute_s + seen.communication_s + seen.other_s
    if not all_seen_s:
        return Split(data_s, own_s, 0.0, 0.0, hidden_s, 0.0, busy_s)
    return Split(
        data_s=data_s,
        own_s=own_s,
        copy_s=busy_s * (seen.copy_s / all_seen_s),
        communication_s=busy_s * (seen.communication_s / all_seen_s),
        compute_s=busy_s * (seen.compute_s / all_seen_s) + hidden_s,
        other_s=busy_s * (seen.other_s / all_seen_s),
        unseen_s=0.0,
    )


def summed(splits: Iterable[Split]) -> Split:
    """Add splits up; of none all parts are 0."""
    return Split(*map(sum, zip(NOTHING, *splits, strict=True)))


NOTHING = Split(*[0.0] * len(Split._fields))
