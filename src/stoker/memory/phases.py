"""Decides what becomes of a place: a dataset's samples, as one loader of the script makes them.

    timing -> learning -> proving -> serving        -> off, from each of them

Timing: are samples dear enough for any of this? Learning: the first samples are watched: where do they draw, and may they depend on more than their
index? Proving: what was kept is made again and compared. Serving: it is used, and made again now
and then. One difference, and the place is off for the rest of the run.
Pure: standard library only.
"""

import math
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple
from zlib import crc32

NUM_TIME = 8
# Samples to be watched, and kept ones to be made anew before one is served: by all workers such a
# share of an epoch, and not fewer than two.
FRAC, MIN_NUM = 0.03, 2
NUM_LEARN = 16
NUM_PROVE = 32
# In a run that finds values of an earlier one, where the script's own files have changed since.
NUM_PROVE_CHANGED = 128
# Whole samples that the original and a cut must give alike in each worker, on each way through the cut:
# before it is used at all, and before it is used by a worker that comes later.
NUM_ALIKE, NUM_ALIKE_AGAIN = 4, 1
# Kept samples that each worker makes anew in an epoch before it serves one: as many as take so long,
# and as are such a share of the epoch.
MAX_FIRST, FIRST_S, FIRST_FRAC = 4, 0.05, 0.005
NUM_AT_ONCE = 4  # samples that are made anew for one that is asked for, in a run that begins so
# Of a place's hits one in FIRST_EVERY on average is made again up to NUM_FIRST, then one in LATER_EVERY.
FIRST_EVERY, NUM_FIRST, LATER_EVERY = 64, 4096, 1024
MIN_GAIN = 3.0  # times that a value must be cheaper to read than to make
# What a hit costs beside its bytes, and what reading those costs. Measured: benchmarks/remembered.py
HIT_S, READ_NBYTES_PER_S = 20e-6, 6e9
MIN_TO_DISPLACE = 2.0  # times that a value must cost more for each byte
NUM_TO_WEIGH = 16  # values made before the gain is judged
MAX_LEFT = 0.5  # of what a whole sample takes, for what a hit has left to do
# Of a worker's time may be spent on writing: before anything has proved worth it, and then. A page
# that is touched for the first time costs as much as 6 us of computing for each KB of a sample.
# Measured (first epochs, benchmarks/remembered.py): more in the first epoch cost images 2 % of it.
# Pairs: least times that a value costs more to make than to write, and share of the time. What is worth it
# so many times over is written in the first epoch; then what a second hit pays for, rather than the rest.
FIRST_WRITE_FRAC, WRITE_FRAC = 0.006, 0.15
MIN_WORTH, WORTH_WRITE_FRAC = 6.0, 0.1
MIN_WORTH_LATER, WORTH_WRITE_FRAC_LATER = 2.0, 0.5
FREE_S = 0.01  # in any case
# Of a worker's time, for looks at all that a dataset reaches while it keeps or is served: before
# anything has proved worth it, and then.
FIRST_LOOKS_FRAC, LOOKS_FRAC = 0.003, 0.01
# A look at all that a dataset reaches may take this share of what all its samples take; there are a
# dozen in each worker while it learns, and one in each epoch then.
LOOK_FRAC, MIN_LOOK_S, MAX_LOOK_S = 0.002, 0.03, 2.0  # of CPU time
# Samples under a profile function, of all workers together; further ones of the first NUM_LEARN as
# long as a worker spends this share of an epoch on them.
NUM_PROFILED, NUM_PROFILED_DEAR, DEAR_US = 4, 2, 20_000
PROFILE_FRAC = 0.005
TIMED_S = 0.5  # of timing, after which a sample is known to be dear, though a library was imported
MANY = 1 << 40  # samples, where nobody knows how many there are
# A path of steps and parts is packed in one number, outer ones first.
MAX_LEVELS, _LEVEL_BITS = 5, 12
_NOWHERE = (1 << _LEVEL_BITS) - 1  # behind every step

SOURCES_CHANGED = 2

CHEAP = "its samples are made as quickly as read"
LITTLE = "what is left to do of a sample takes more than half as long as all of it"
AT_ONCE = "draws random numbers at its very first step"
DIFFERED_AWAY = "a sample differed on another machine"


class Phase(Enum):
    TIMING = "timing"
    LEARNING = "learning"
    PROVING = "proving"
    SERVING = "serving"
    OFF = "off"


Path = tuple[int, ...]


def packed(path: Path) -> int:
    """Pack the path to where a sample draws, so that the earliest is the smallest number: a step of
    `__getitem__`, a part of what that calls (a step of a function, a transform of a Compose), and so
    on, as far inside as somebody has looked. Of a sample that draws nowhere it is empty."""
    number = 0
    for level in range(MAX_LEVELS):
        number = number << _LEVEL_BITS | (path[level] if level < len(path) else _NOWHERE)
    return number


def unpacked(number: int) -> Path:
    levels = [number >> _LEVEL_BITS * k & _NOWHERE for k in reversed(range(MAX_LEVELS))]
    return tuple(levels[: levels.index(_NOWHERE)] if _NOWHERE in levels else levels)


class Counts(NamedTuple):
    """What is known of a place. first_draw: the earliest at which one of the samples drew, packed."""

    num_learnt: int = 0
    first_draw: int = 0
    num_proven: int = 0
    num_differed: int = 0
    num_hits: int = 0
    num_misses: int = 0
    num_stored: int = 0
    num_checked: int = 0
    stored_nbytes: int = 0
    saved_us: int = 0
    made_us: int = 0  # by the samples of num_made
    num_made: int = 0
    made_nbytes: int = 0  # of them
    num_samples: int = 0  # that the dataset has
    num_timed: int = 0
    timed_us: int = 0  # by them, as the median of some took
    is_proven: int = 0  # by an earlier run; SOURCES_CHANGED: whose script had other files
    is_noted: int = 0  # 1: other runs can know by now
    num_of_session: int = 0  # samples that read what another run has not: none is kept for one
    sources: int = 0  # 63 bits that tell the script's own files; of an earlier run
    way: int = 0  # 63 bits that tell a way through a cut
    num_alike: int = 0  # whole samples that the original and the cut gave alike on it
    # What remembering took of workers' time: to watch and look, to make again, to write.
    learn_us: int = 0
    prove_us: int = 0
    write_us: int = 0


EMPTY = Counts(first_draw=packed(()))


class Depth(NamedTuple):
    """How much of a sample is remembered: up to a step, in it up to a part, and so on; of an empty
    path all."""

    path: Path

    @property
    def is_whole(self) -> bool:
        return not self.path

    def less(self, num_steps: int) -> "Depth | None":
        """Return the next depth that is less, of a `__getitem__` of so many steps: a part less, and
        out of what is called at its start. None at its own start."""
        return _before((num_steps - 1,) if self.is_whole else (*self.path[:-1], self.path[-1] - 1))

    @property
    def first_draw(self) -> int:
        """The packed path of a draw for which nothing more is remembered than this."""
        return packed((*self.path, 0)[:MAX_LEVELS])

    def __str__(self) -> str:
        if self.is_whole:
            return "whole samples"
        if len(self.path) == 1:
            return "up to the first random step"
        return "up to the first random step or transform in what that calls"


def _before(path: Path) -> Depth | None:
    """Return the depth in front of a part: in front of the first one it is that of the whole call."""
    while path and path[-1] == 0:
        path = path[:-1]
    return Depth(path) if path else None


def phase_of(known: Counts, why: str) -> tuple[Phase, str]:
    """Return the phase, and why it is off if it is. why: a worker has found that it must be."""
    if why:
        return Phase.OFF, why
    if known.num_differed:
        return Phase.OFF, "a sample that was made again differed"
    if known.num_timed < NUM_TIME:
        return Phase.TIMING, ""
    if are_cheap(known):
        return Phase.OFF, CHEAP
    if known.num_learnt < num_to_learn(known):
        return Phase.LEARNING, ""
    if depth_of(known) is None:
        return Phase.OFF, AT_ONCE
    if known.num_made >= NUM_TO_WEIGH and not gains(known):
        return Phase.OFF, CHEAP
    if _is_in_vain(known):
        return Phase.OFF, "what its samples depend on changes from epoch to epoch"
    return (Phase.PROVING if known.num_proven < num_to_prove(known) else Phase.SERVING), ""


def share_of(known: Counts, most: int) -> int:
    """Return how many samples are a small share of an epoch; `most` of one of which nobody knows how
    many it has."""
    return (
        min(most, max(MIN_NUM, math.ceil(FRAC * known.num_samples))) if known.num_samples else most
    )


def num_to_learn(known: Counts) -> int:
    """Return how many samples are watched, of all workers together."""
    return max(share_of(known, NUM_LEARN), NUM_PROFILED_DEAR if _are_dear(known) else NUM_PROFILED)


def num_to_prove(known: Counts) -> int:
    """Return how many kept values are made anew and compared before one is served: in a run that
    finds those of an earlier one more, though no more than there are samples."""
    if not known.is_proven:
        return share_of(known, NUM_PROVE)
    num = NUM_PROVE_CHANGED if known.is_proven == SOURCES_CHANGED else NUM_PROVE
    return min(num, max(known.num_samples, 1))


def num_first(known: Counts) -> int:
    """Return how many kept samples each worker makes anew before it serves one in an epoch."""
    few = FIRST_FRAC * known.num_samples if known.num_samples else MAX_FIRST
    return max(1, min(MAX_FIRST, int(FIRST_S / max(sample_s(known), 1e-6)), int(few)))


def num_alike(known: Counts, phase: Phase) -> int:
    """Return how many whole samples the original and a cut must give alike in a worker, on each way."""
    return NUM_ALIKE_AGAIN if phase is Phase.SERVING else share_of(known, NUM_ALIKE)


def _are_dear(known: Counts) -> bool:
    return known.timed_us > DEAR_US * known.num_timed


def of_files(known: Counts) -> Counts:
    """Return the counts of a decoder, for `phase_of`: as many files as were kept, which leaves open whether
    they should have come again; nobody knows how many where an earlier run may have kept them."""
    is_known = known.num_stored > 0 and not known.is_proven
    return known._replace(num_samples=known.num_stored if is_known else MANY)


def are_cheap(known: Counts) -> bool:
    """Whether whole samples were timed, and are as quickly made as anything is read."""
    return known.num_timed > 0 and sample_s(known) < MIN_GAIN * HIT_S


def depth_of(known: Counts) -> Depth | None:
    """Return up to where samples draw nothing; None if they draw at once."""
    return depth_of_draw(known.first_draw)


def depth_of_draw(first_draw: int) -> Depth | None:
    path = unpacked(first_draw)
    return _before(path) if path else Depth(())


def _is_in_vain(known: Counts) -> bool:
    """Whether as much was kept as three epochs need, and next to nothing of it was found again."""
    num_enough = 3 * max(known.num_samples, NUM_PROVE)
    return known.num_stored > num_enough and known.num_hits < known.num_stored // 4


def are_enough(times_s: Sequence[float]) -> bool:
    """Whether so many samples tell how dear one is: of dear ones two, the first use of a library aside."""
    are_dear = min(times_s) > 10 * MIN_GAIN * HIT_S
    return len(times_s) >= NUM_TIME or (are_dear and (len(times_s) > 1 or sum(times_s) > TIMED_S))


def may_profile(known: Counts, watched_s: float, of_s: float) -> bool:
    """Whether one more sample may be watched under a profile function, which makes it some times as
    dear. watched_s: that this worker has spent so; of_s: on what."""
    if known.num_learnt < (NUM_PROFILED_DEAR if _are_dear(known) else NUM_PROFILED):
        return True
    return watched_s < PROFILE_FRAC * of_s


def sample_s(known: Counts) -> float:
    """Return what one sample takes, as far as is known."""
    return known.timed_us / 1e6 / max(known.num_timed, 1)


def epoch_s(known: Counts) -> float:
    """Return what all samples of the dataset take, one after another."""
    return known.num_samples * sample_s(known)


def look_s(known: Counts) -> float:
    """Return the seconds that a look at all that a dataset reaches may take."""
    return min(max(LOOK_FRAC * epoch_s(known), MIN_LOOK_S), MAX_LOOK_S)


def look_frac(num_proven: int) -> float:
    """Return the share of a worker's time that looks may take. num_proven: see `may_write`."""
    return LOOKS_FRAC if num_proven else FIRST_LOOKS_FRAC


def gains(known: Counts) -> bool:
    """Whether reading a value gains enough over making it."""
    make_s = known.made_us / 1e6 / known.num_made
    return make_s > MIN_GAIN * read_s(known.made_nbytes / known.num_made)


def leaves_little(left_s: Sequence[float], whole_s: Sequence[float], nbytes: float) -> bool:
    """Whether a hit gains too little, by what second halves and whole samples took of late: faster ways
    of a library may need both halves to see that most of the first is not needed. nbytes: of a value.
    """
    if len(left_s) < NUM_TO_WEIGH // 2 or len(whole_s) < NUM_TO_WEIGH:
        return False
    return median_low(left_s) + read_s(nbytes) > MAX_LEFT * median_low(whole_s)


def median_low(values: Sequence[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]


def read_s(nbytes: float) -> float:
    return HIT_S + nbytes / READ_NBYTES_PER_S


def must_check(num_known: int, num_hits: int, key: bytes) -> bool:
    """Whether a hit of a value under this key is to be made again and compared: by chance, so that each
    value's turn comes, in whatever order a sampler asks for them. num_known: hits of all workers, as
    far as this one knows; num_hits: its own."""
    every = FIRST_EVERY if max(num_known, num_hits) < NUM_FIRST else LATER_EVERY
    return crc32(key, num_hits) % every == 0


class Wanted(NamedTuple):
    """Room for samples of one place. us_per_byte: what they cost; nbytes: of those that are not
    kept; sample_nbytes: of one."""

    us_per_byte: float
    nbytes: float
    sample_nbytes: float


def most_wanted(places: Sequence[Counts]) -> Wanted | None:
    """Return the room for those samples that cost most for each byte; None if all are kept, or if
    none of another place cost so little that they should go."""
    found = [
        Wanted(each.made_us / each.made_nbytes, missing * sample_nbytes, sample_nbytes)
        for each in places
        if each.made_nbytes and not each.num_differed and gains(each)
        for missing in [each.num_samples - each.num_stored]
        for sample_nbytes in [each.made_nbytes / each.num_made]
        if missing > 0
    ]
    wanted = max(found, default=None)
    kept = [each.made_us / each.made_nbytes for each in places if each.num_stored]
    if wanted is None or not any(must_go(cost, wanted.us_per_byte) for cost in kept):
        return None
    return wanted


def must_go(us_per_byte: float, wanted_us_per_byte: float) -> bool:
    """Whether a value makes room for one that costs so much more."""
    return MIN_TO_DISPLACE * us_per_byte < wanted_us_per_byte


def may_write(
    spent_s: float, worked_s: float, saved_s: float, num_proven: int, worth: float = 0.0
) -> bool:
    """Whether there is time to write one more value. spent_s: on writing; worked_s: on samples;
    saved_s: by hits; num_proven: values that were made again, as there are from the second epoch on;
    worth: times that a value costs more to make than to write.
    """
    if num_proven:
        frac = WORTH_WRITE_FRAC_LATER if worth >= MIN_WORTH_LATER else WRITE_FRAC
        return spent_s <= FREE_S + frac * (worked_s + saved_s)
    frac = WORTH_WRITE_FRAC if worth >= MIN_WORTH else FIRST_WRITE_FRAC
    return spent_s <= FREE_S + frac * worked_s


def added(counts: Sequence[Counts]) -> Counts:
    """Add up the rows of one place."""
    if not counts:
        return EMPTY
    sums = Counts(*(sum(column) for column in zip(*counts, strict=True)))
    way = max(counts, key=lambda each: (each.num_alike, each.way)).way
    return sums._replace(
        way=way,
        num_alike=sum(each.num_alike for each in counts if each.way == way),
        first_draw=min(each.first_draw for each in counts),
        num_samples=max(each.num_samples for each in counts),
        is_proven=max(each.is_proven for each in counts),
        is_noted=max(each.is_noted for each in counts),
        sources=max(each.sources for each in counts),
    )


def learnt_again(earlier: Counts, sources: int) -> Counts:
    """Return the counts that a run begins with, that finds a place as an earlier one left it. sources:
    what tells the script's files now."""
    return EMPTY._replace(
        num_timed=NUM_TIME,
        timed_us=NUM_TIME * earlier.timed_us // max(earlier.num_timed, 1),
        num_learnt=NUM_LEARN,
        first_draw=earlier.first_draw,
        num_of_session=earlier.num_of_session,
        is_proven=1 if earlier.sources == sources else SOURCES_CHANGED,
        is_noted=1,
        sources=sources,
    )
