"""Slots, by what their workers are for: C[1] is of chain 1."""

from stoker.scheduler.tasks.slot import Role, Slot

C, E, R, S = (
    [Slot(role, number) for number in range(16)]
    for role in (Role.CHAIN, Role.EXTRA, Role.REMOTE, Role.SECOND)
)
