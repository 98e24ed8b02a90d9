"""Memory that workers and trainer share: the names that other packages may use."""

from stoker.wire.arena.arena import ARENA_NBYTES, Arena
from stoker.wire.arena.forked_child import ForkedChild
from stoker.wire.arena.heap import AT_ONCE_NBYTES, Heap, Room
from stoker.wire.arena.lender import Lender
from stoker.wire.arena.pool import ArenaPool
from stoker.wire.arena.regions import Regions

__all__ = [
    "ARENA_NBYTES",
    "AT_ONCE_NBYTES",
    "Arena",
    "ArenaPool",
    "ForkedChild",
    "Heap",
    "Lender",
    "Regions",
    "Room",
]
