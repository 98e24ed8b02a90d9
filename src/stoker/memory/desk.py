"""A worker's desk at the shelf, and the tallies of the places that it has there.

Owner: the worker's main thread.
"""

import hashlib
import operator
import os
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from stoker.memory import phases
from stoker.memory.phases import Counts, Phase
from stoker.memory.store import Kept, Key, Rows, Seat, ShelfAccess, Stores
from stoker.memory.watch import Asked, Opened, global_look, sources, tell_of_readers

DECODER = "decoder "  # before the name of a place that is a function, and no dataset
_COUNT_EVERY = 16  # hits: to note each for all workers to see would cost a tenth of it
_COUNT_PLAIN_EVERY = 64  # samples that are neither kept nor compared


class Desk:
    """What the places of one worker share: its seat at the shelf, and the time it has spent there.

    copies: whether samples are the script's to change, and not only copied into a batch; rows: of
    the batch that the next sample is copied into, by where in it each of its tensors lies; None if
    that is not known; serves: whether a sample came from the shelf.
    """

    def __init__(self, access: ShelfAccess, is_only_worker: bool) -> None:
        self.seat = Seat(access.shelf, access.seat)
        self.stores = Stores(access)
        self.loader, self.audit, self.trusted = access.loader, access.audit, access.trusted
        self.is_only_worker = is_only_worker
        self.opened, self.asked = Opened(self.stores.descriptors), Asked()
        self.look = global_look()
        self.copies = True
        self.rows: Rows | None = None
        self.serves = False
        # Makes a sample of a dataset that is left alone.
        self.make_alone: Callable[[Any, Any], Any] = operator.getitem
        self.tallies: list[Tally] = []
        self._num_modules = 0
        self.worked_s = self.saved_s = self.spent_s = 0.0

    def watch_readers(self) -> bool:
        """Hear of files that compiled code opens. Returns whether more has been imported since."""
        num = len(sys.modules)
        if num == self._num_modules:
            return False
        self._num_modules = num
        tell_of_readers(self.opened, self.asked)
        return True

    def close(self) -> None:
        """Count what is not counted yet."""
        for tally in self.tallies:
            tally.close()


def is_dropped(state: bytes, dropped: bytes) -> bool:
    """Whether a state of 16 bytes is one of them."""
    size = len(state)
    return any(state == dropped[at : at + size] for at in range(0, len(dropped), size))


class Tally:
    """What one worker counts of a place, and the values that it keeps. counts: its own so far."""

    def __init__(self, desk: Desk, key: bytes, name: str) -> None:
        """key, name: the place's."""
        self._desk, self._shelf, self.key = desk, desk.seat.shelf, key
        self._row = desk.seat.row_of(key, name)
        self.counts = Counts() if self._row is None else self._row.read()
        self._num_served = self._served_us = 0  # hits not counted yet, and what they saved
        self._num_plain = 0  # samples not counted yet that were neither kept nor compared
        self._times_s: list[float] = []  # of the worker's first samples
        # Of the last second halves, and of the last whole samples that were just made.
        self.left_s: deque[float] = deque(maxlen=phases.NUM_TO_WEIGH)
        self.whole_s: deque[float] = deque(maxlen=phases.NUM_TO_WEIGH)
        self._nbytes = 0  # of the last value
        self._num_written = 0  # values that were kept or compared
        # Of the worker's time, by the count that tells of it; and what was counted of that.
        self._spent_s = {"learn_us": 0.0, "prove_us": 0.0, "write_us": 0.0}
        self._counted_us = dict.fromkeys(self._spent_s, 0)
        self.num_calls = 0  # samples asked for, kept or not
        self._kept_at: dict[bytes, int] = {}  # of keys, the number of the call, while that matters
        self._is_proving = False
        desk.tallies.append(self)

    @property
    def num_hits(self) -> int:
        return self.counts.num_hits + self._num_served

    def known(self) -> tuple[Counts, str]:
        """Return what all workers know of the place, and why it is left alone if it is."""
        counts, why = self._shelf.counts_of(self.key)
        if self._row is None:
            has_seat = self._desk.seat.number is not None
            why = why or ("too many datasets are remembered" if has_seat else "no seat is free")
        return counts, why

    def drop(self, state: bytes) -> None:
        """Say that a value differed: nobody is to use what is kept of this state."""
        self._shelf.drop(state)

    @property
    def dropped(self) -> bytes:
        """What all loaders have said so of: another text when one more is."""
        return self._shelf.dropped

    def say_why(self, why: str) -> None:
        """Say why the place is left alone; the first reason stays."""
        if self._row is not None and not self._row.why:
            self._row.say_why(why)

    @property
    def origin(self) -> bytes:
        """The state of the place when a worker first met it; empty if nobody has said."""
        return self._shelf.origin_of(self.key)

    def take_up(self, state: bytes) -> bool:
        """Begin with what an earlier run has learnt of the place in this state, its origin. Returns
        whether it may be remembered: not if a value differed there."""
        if self._row is not None:
            self._row.say_origin(state)
        earlier = self._desk.stores.learnt(state)
        self.put(sources=sources())
        if earlier is not None and not earlier.num_differed:
            again = phases.learnt_again(earlier, self.counts.sources)
            self.put(**again._replace(num_samples=self.counts.num_samples)._asdict())
        return earlier is None or not earlier.num_differed

    def note_for_others(self, known: Counts) -> None:
        """Tell other runs what was learnt, of the state that the place had at first."""
        if self._desk.stores.lasts and (known.num_differed or not known.is_noted):
            self._desk.stores.note_learnt(self.origin, known)
            self.put(is_noted=1)

    def count(self, **more: int) -> None:
        if self._row is None:
            return
        for name, spent_s in self._spent_s.items():
            more[name] = int(1e6 * spent_s) - self._counted_us[name]
            self._counted_us[name] += more[name]
        if self._num_served:
            more["num_hits"] = more.get("num_hits", 0) + self._num_served
            more["saved_us"] = more.get("saved_us", 0) + self._served_us
            self._num_served = self._served_us = 0
        self.put(**{name: getattr(self.counts, name) + number for name, number in more.items()})

    def put(self, **numbers: int) -> None:
        """Set numbers, where `count` adds to them."""
        if self._row is not None:
            self.counts = self.counts._replace(**numbers)
            self._row.write(self.counts)

    def serve(self, made_us: int) -> None:
        """Count a hit. made_us: that it saved."""
        self._num_served += 1
        self._served_us += made_us
        self._desk.saved_s += made_us / 1e6
        if self._num_served >= _COUNT_EVERY:
            self.count()

    def make_plain(self) -> None:
        """Count a sample that was neither kept nor compared."""
        self._num_plain += 1
        if self._num_plain >= _COUNT_PLAIN_EVERY:
            self.close()

    def close(self) -> None:
        """Count what is not counted yet."""
        num_plain, self._num_plain = self._num_plain, 0
        if num_plain or self._num_served:
            self.count(num_misses=num_plain)

    def is_timed(self, took_s: float) -> bool:
        """Take how long a sample took. Returns whether it is known by now how dear they are."""
        self._times_s.append(took_s)
        if not phases.are_enough(self._times_s):
            return False
        took_us = int(1e6 * phases.median_low(self._times_s))
        self.count(num_timed=phases.NUM_TIME, timed_us=phases.NUM_TIME * took_us)
        return True

    def wants_more(self, key: Key, num_proven: int) -> bool:
        """Whether one more value is to be kept: there is time to write it, and room for one like the
        last. num_proven: by all workers."""
        desk, worth = self._desk, 0.0
        if self.counts.num_made and self._num_written:
            made_s = self.counts.made_us / 1e6 / self.counts.num_made
            worth = made_s * self._num_written / max(self._spent_s["write_us"], 1e-9)
        if not phases.may_write(desk.spent_s, desk.worked_s, desk.saved_s, num_proven, worth):
            return False
        if self.counts.num_made < phases.NUM_TO_WEIGH:
            return True  # to know what it costs: cheaper values of others may make room
        return desk.stores.has_room(key, self._nbytes)

    def keep(self, key: Key, parts: list[memoryview], made_s: float) -> bool:
        """Keep a value, if that gains. Returns whether it is kept."""
        self._nbytes = nbytes = sum(part.nbytes for part in parts)
        made_us = int(made_s * 1e6)
        self.count(num_misses=1, num_made=1, made_us=made_us, made_nbytes=nbytes)
        if made_s < phases.MIN_GAIN * phases.read_s(nbytes):
            return False
        is_kept = self._desk.stores.put(key, parts, made_us)
        if is_kept:
            self.count(num_stored=1, stored_nbytes=nbytes)
            if self._is_proving:
                self._kept_at[key.now] = self.num_calls
        return is_kept

    def spend(self, learn_s: float = 0.0, prove_s: float = 0.0) -> None:
        """Count what watching samples and making them again took, beside the samples themselves."""
        self._spent_s["learn_us"] += learn_s
        self._spent_s["prove_us"] += prove_s

    def spend_on_value(self, seconds: float) -> None:
        """Count what a value took beside its making, to be kept or compared."""
        self._spent_s["write_us"] += seconds
        self._num_written += 1
        self._desk.spent_s += seconds

    @property
    def leaves_little(self) -> bool:
        """Whether a hit would leave nearly all of a sample to be done."""
        return phases.leaves_little(self.left_s, self.whole_s, self._nbytes)

    def begin_phase(self, phase: Phase) -> None:
        self._is_proving = phase is Phase.PROVING
        if not self._is_proving:
            self._kept_at.clear()

    def is_proof(self, key: Key, kept: Kept) -> bool:
        """Whether a value was made by another process, or by this one long ago: where samples stay
        with living workers, nobody else ever makes them."""
        desk = self._desk
        if desk.is_only_worker or desk.stores.is_of_another(kept, os.getpid()):
            return True
        at = self._kept_at.get(key.now)
        if at is None:
            return kept.is_on_disk  # there it is known by the seat, which had another worker before
        return self.num_calls - at >= phases.share_of(self.counts, phases.NUM_PROVE)

    @property
    def is_to_weigh(self) -> bool:
        """Whether so many more were made that their gain is to be judged anew."""
        return self.counts.num_made % phases.NUM_TO_WEIGH == 0


def tally_of(desk: Desk, dataset: Any, where: str) -> Tally:
    """Return the tally of a dataset. where: inside torch's wrappers, from the loader's dataset on."""
    kind = type(dataset)
    name = f"{kind.__module__}.{kind.__qualname__}{where}"
    key = hashlib.blake2b(desk.loader + name.encode(), digest_size=16).digest()
    tally = Tally(desk, key, _name_of(dataset))
    tally.put(num_samples=_length_of(dataset))
    return tally


def _name_of(dataset: Any) -> str:
    """Return file, line and class of the code that makes a sample."""
    kind = type(dataset)
    code = getattr(getattr(kind, "__getitem__", None), "__code__", None)
    if code is None:
        return f"{kind.__module__}.{kind.__qualname__}"
    return f"{code.co_filename}:{code.co_firstlineno} {kind.__qualname__}"


def _length_of(dataset: Any) -> int:
    try:
        return len(dataset)
    except Exception:  # not every dataset has one
        return 0
