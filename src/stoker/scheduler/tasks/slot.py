"""Defines slots: each holds one worker process at a time, and its role says what for.

Pure: standard library only.
"""

from enum import IntEnum
from typing import NamedTuple


class Role(IntEnum):
    """The purpose of a slot's worker. Numbered, because roles travel between processes."""

    CHAIN = 0  # number: the chain's; on this machine or another
    EXTRA = 1  # tasks that stand alone, on this machine; number: counted on from the chains
    FINGERPRINT = 2  # makes no batch, only tells the job's fingerprint at iter()
    REMOTE = 3  # tasks that stand alone, on another machine
    SECOND = 4  # of a chain as well: asked for the same as the first, which is late
    PACKER = 5  # no worker: packs the job for other machines


class Slot(NamedTuple):
    """A place for one worker process at a time. Sorted: this machine's before others'."""

    role: Role
    number: int

    @property
    def chain(self) -> int | None:
        """Number of the chain whose worker it is; None: it takes free-standing tasks, or none."""
        return self.number if self.role in (Role.CHAIN, Role.SECOND) else None

    def __str__(self) -> str:
        return f"{'remote ' * (self.role is Role.REMOTE)}worker {self.number}"


FINGERPRINT = Slot(Role.FINGERPRINT, 0)
PACKER = Slot(Role.PACKER, 0)


class Exit(NamedTuple):
    """Says how a slot's worker ended. code: exit status, negative for a signal, as `Process.exitcode`."""

    slot: Slot
    pid: int
    code: int
