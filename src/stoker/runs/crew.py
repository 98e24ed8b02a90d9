"""What a run's workers were seen to be at: counted in the training process, read by the process that shows it. Pure.

number of places, of looks, batches that were ready in all of them | loader, role, worker, where, looks, busy ...
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

MAX_PLACES = 1024
IDLE, GONE = -1, -2  # in place of a task (wire/marks.py, NOTHING and LOST)
_HEAD = struct.Struct("<IIQ")
_PLACE = struct.Struct("<HBBIII")
NBYTES = _HEAD.size + MAX_PLACES * _PLACE.size
# Flags of a place: its worker is on another machine; it was lost, and none has come for it yet.
AWAY, LOST = 1, 2
NOT_SEEN, IS_LOST = "-", "x"  # beside the digits of `busy_of`
DIGITS = "0123456789a"  # tenths


class At(NamedTuple):
    """Says what one worker is at. role, number: of its slot; is_here: on this machine; making: id of its task, IDLE or
    GONE; owes: ids of the tasks that it was sent and has not been heard to have done."""

    role: int
    number: int
    is_here: bool
    making: int
    owes: list[int]


class Place(NamedTuple):
    """Says what the workers of one slot were seen at. number: of the loader; flags: AWAY, LOST."""

    number: int
    role: int
    flags: int
    slot: int
    num_looks: int = 0
    num_busy: int = 0


class Crew(NamedTuple):
    """Holds what was seen since the run began. num_ready: batches that waited for the loop, added up over the looks."""

    num_looks: int
    num_ready: int
    places: list[Place]


NOBODY = Crew(0, 0, [])


class Looks:
    """Adds up looks at the workers of several loaders."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, int, int], Place] = {}
        self._num_looks = self._num_ready = 0
        self._worked: set[tuple[int, int, int]] = set()  # that have been seen to make something

    def add(self, loaders: Iterable[tuple[int, int, list[At]]]) -> None:
        """Count a look. loaders: the number of each that has workers, batches received and not taken, its workers."""
        self._num_looks += 1
        for number, num_held, workers in loaders:
            self._num_ready += num_held
            for at in workers:
                key = (number, at.role, at.number)
                if at.making >= 0:
                    self._worked.add(key)
                if at.is_here and key in self._worked:  # before, it may only be starting
                    self._num_ready += _num_done(at)
                self._count(key, at)

    def _count(self, key: tuple[int, int, int], at: At) -> None:
        place = self._places.get(key)
        if place is None:
            if len(self._places) == MAX_PLACES:
                return
            place = Place(key[0], at.role, 0, at.number)
        if at.making == GONE:
            self._places[key] = place._replace(flags=place.flags | LOST)
        else:
            self._places[key] = place._replace(
                flags=0 if at.is_here else AWAY,
                num_looks=place.num_looks + 1,
                num_busy=place.num_busy + (at.making >= 0),
            )

    def row(self) -> bytes:
        head = _HEAD.pack(len(self._places), self._num_looks, self._num_ready)
        return head + b"".join(_PLACE.pack(*place) for place in self._places.values())


def read_row(data: bytes) -> Crew:
    num, num_looks, num_ready = _HEAD.unpack_from(data)
    places = [
        Place(*_PLACE.unpack_from(data, _HEAD.size + k * _PLACE.size))
        for k in range(min(num, MAX_PLACES))
    ]
    return Crew(num_looks, num_ready, places)


def _num_done(at: At) -> int:
    """Return how many batches wait in a worker's socket: it makes its tasks in the order of their ids."""
    return len(at.owes) if at.making < 0 else sum(task < at.making for task in at.owes)


def busy_of(before: Crew, now: Crew) -> str:
    """Return a character a place, for the time between two: tenths of it busy (DIGITS), lost, or not seen."""
    found = []
    for k, place in enumerate(now.places):
        old = before.places[k] if k < len(before.places) else Place(0, 0, 0, 0)
        num = place.num_looks - old.num_looks
        if place.flags & LOST:
            found.append(IS_LOST)
        elif num > 0:
            found.append(DIGITS[10 * (place.num_busy - old.num_busy) // num])
        else:
            found.append(NOT_SEEN)
    return "".join(found)
