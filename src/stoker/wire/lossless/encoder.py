"""Decides which lossless codec to use for which tensor, and whether it gains time on this link.

Promise: a codec that gains nothing costs 2 % at most.
"""

import itertools
import math
from collections.abc import Callable

from stoker import clock
from stoker.wire.lossless.codecs import Coded, Coder, coders, warm
from stoker.wire.lossless.memory import Array, Dense, Scratch, dense

# Below this a table is half of what is sent, and a message costs more than its bytes.
MIN_NBYTES = 16 * 1024
MAX_KINDS = 256  # of tensors that an encoder remembers; a table of 3 channels takes 16 KB


class Worth:
    """Decides whether encoding one kind of tensor gains time on a link. Pure: it reads no clock.

    A codec is used while sending the raw bytes would take longer than encoding, sending and
    decoding take one after the other. If it was of no use it is tried again after REST times what
    the try cost: so a codec that is never used costs 2 % at most.
    """

    THIN_NBYTES_PER_S = 125e6  # a link of unknown speed is taken for 1 Gbit/s
    MARGIN = 1.1  # a smaller gain is noise
    DECODE_SHARE = 0.5  # of the time to encode, as benchmarks/lossless.py measures both
    REST = 50.0
    NUM_FIRST = 3  # tries in a row at first: the first one learns, in memory that is cold

    def __init__(self) -> None:
        self._encode_s_per_byte = (math.inf, math.inf)  # of raw bytes, the last two
        self._sent_share = 1.0
        self._num_first_left = self.NUM_FIRST
        self._retry_at_s = -math.inf

    def gains(self, link_nbytes_per_s: float | None) -> bool:
        """Whether encoding gains time, as measured so far; of two measurements the quicker counts,
        for noise only ever slows."""
        raw_s = 1 / (link_nbytes_per_s or self.THIN_NBYTES_PER_S)
        work_s = min(self._encode_s_per_byte) * (1 + self.DECODE_SHARE)
        return (work_s + self._sent_share * raw_s) * self.MARGIN < raw_s

    def wants_a_try(self, link_nbytes_per_s: float | None, now_s: float) -> bool:
        return now_s >= self._retry_at_s or self.gains(link_nbytes_per_s)

    def succeeded(self, raw_nbytes: int, sent_nbytes: int, spent_s: float, now_s: float) -> None:
        """Note that a tensor was encoded, whether or not it was sent so."""
        self._encode_s_per_byte = self._encode_s_per_byte[1], spent_s / raw_nbytes
        self._sent_share = sent_nbytes / raw_nbytes
        self._num_first_left -= 1
        if self._num_first_left <= 0:
            self._retry_at_s = now_s + self.REST * spent_s

    def failed(self, spent_s: float, now_s: float) -> None:
        """Note that no codec suits a tensor's content."""
        self._encode_s_per_byte = (math.inf, math.inf)
        self._num_first_left = self.NUM_FIRST
        self._retry_at_s = now_s + self.REST * spent_s


class _Kind:
    """Remembers, of tensors that look alike, which codec worked and what it gained."""

    def __init__(self) -> None:
        self.worth = Worth()
        self.coder: Coder | None = None  # that did it last

    def encode(self, memory: Dense, scratch: Scratch) -> Coded | None:
        """Encode with the codec that worked last, else try all: its tables may be outdated."""
        for coder in itertools.chain([self.coder] if self.coder else [], coders(memory)):
            coded = coder(memory, scratch)
            if coded is not None:
                self.coder = coder
                return coded
        self.coder = None
        return None


class Encoder:
    """Encodes one link's tensors; remembers per kind what worked and what it gained. Not
    thread-safe."""

    def __init__(
        self,
        now_s: Callable[[], float] = clock.now_s,
        cpu_s: Callable[[], float] = clock.thread_cpu_s,
    ) -> None:
        # Work is told in CPU time: on a worker whose cores are all taken that is what it costs.
        self._now_s, self._cpu_s, self._scratch = now_s, cpu_s, Scratch()
        self._kinds: dict[object, _Kind] = {}

    def encode(self, shown: Array, link_nbytes_per_s: float | None = None) -> Coded | None:
        """Encode a dense tensor's whole memory; None: send it as it is, for that is as quick.

        shown: the tensor as numpy shows it; bfloat16, which numpy lacks, as its float16 view.
        link_nbytes_per_s: as the caller measured it; None if it is unknown.
        """
        memory = dense(shown) if shown.nbytes >= MIN_NBYTES else None
        if memory is None:
            return None
        kind = self._kind_of(memory)
        if not kind.worth.wants_a_try(link_nbytes_per_s, self._now_s()):
            return None
        if memory.flat.dtype.kind == "f":
            warm()  # not counted as work
        before_s = self._cpu_s()
        coded = kind.encode(memory, self._scratch)
        spent_s, now_s = self._cpu_s() - before_s, self._now_s()
        if coded is None:
            kind.worth.failed(spent_s, now_s)
            return None
        kind.worth.succeeded(memory.flat.nbytes, coded.nbytes, spent_s, now_s)
        return coded if kind.worth.gains(link_nbytes_per_s) else None

    def _kind_of(self, memory: Dense) -> _Kind:
        """Return what is known of tensors alike in type, memory order, number of channels where
        images have it, and size within 2x."""
        num_channels = memory.shape[-3] if len(memory.shape) >= 3 else 0
        size_class = memory.flat.nbytes.bit_length()
        key = memory.flat.dtype.str, memory.order, num_channels, size_class
        if key not in self._kinds and len(self._kinds) >= MAX_KINDS:
            self._kinds.clear()
        return self._kinds.setdefault(key, _Kind())
