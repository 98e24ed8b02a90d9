"""Fewer bytes come back to the very same bits, or not at all; a gain that is none is not taken."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="the cluster extra is not installed")
pytest.importorskip("zstandard", reason="the cluster extra is not installed")

from stoker.wire.lossless import (
    MIN_NBYTES,
    Codec,
    Coded,
    Encoder,
    Worth,
    decode,
    raw_nbytes,
    warm,
)

GUARD_NBYTES = 64
NEVER = 0xA5
GIGABIT = 125e6  # bytes/s
LOOPBACK = 5e9


@pytest.fixture(scope="module", autouse=True)
def compiled_before_any_deadline() -> None:
    warm()


def still() -> float:
    """A clock by which all work is done at once, so that every codec gains."""
    return 0.0


def coded(shown: np.ndarray, encoder: Encoder | None = None) -> Coded | None:
    return (encoder or Encoder(still, still)).encode(shown)


def decoded(codec: int, head: bytes, payload: bytes, nbytes: int) -> np.ndarray:
    """What decode wrote, and that it wrote nothing around it, even if it raised."""
    memory = np.full(nbytes + 2 * GUARD_NBYTES, NEVER, np.uint8)
    try:
        decode(codec, head, payload, memory[GUARD_NBYTES:-GUARD_NBYTES].data)
    finally:
        assert (memory[:GUARD_NBYTES] == NEVER).all()
        assert (memory[-GUARD_NBYTES:] == NEVER).all()
    return memory[GUARD_NBYTES:-GUARD_NBYTES]


def in_memory_order(shown: np.ndarray) -> bytes:
    """Of a dense array, from its first byte to its last."""
    return np.lib.stride_tricks.as_strided(shown, (shown.size,), (shown.itemsize,)).tobytes()


def round_trip(shown: np.ndarray, encoder: Encoder | None = None) -> Coded | None:
    """What was sent, after a check that it is the same memory; None if nothing was coded."""
    sent = coded(shown, encoder)
    if sent is not None:
        assert raw_nbytes(sent.head) == shown.nbytes
        payload = b"".join(sent.parts)
        back = decoded(sent.codec, sent.head, payload, shown.nbytes)
        assert back.tobytes() == in_memory_order(shown)
    return sent


def bits_of(dtype: str) -> np.dtype:
    return np.dtype(f"u{np.dtype(dtype).itemsize}")


def any_values(rng: np.random.Generator, dtype: str, num: int) -> np.ndarray:
    """Different bit patterns, NaNs with payloads and denormals among them."""
    bits = np.unique(rng.integers(0, np.iinfo(bits_of(dtype)).max, 2 * num, bits_of(dtype)))
    odd = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], dtype).view(bits.dtype)
    bits = np.concatenate([odd, [odd[4] | 1, 1], np.setdiff1d(bits, odd)])[:num]
    return bits.astype(bits_of(dtype)).view(dtype)


def image_batch(
    num_values: int = 256, shape: tuple[int, ...] = (4, 3, 40, 40), dtype: str = "f4", seed: int = 0
) -> np.ndarray:
    """Each channel (axis -3) shows values of its own, all of them if it is large enough."""
    rng = np.random.default_rng(seed)
    batch = np.empty(shape, dtype)
    for c in range(shape[-3]):
        plane = batch[..., c, :, :]
        chosen = rng.integers(0, num_values, plane.shape)
        chosen.reshape(-1)[:num_values] = np.arange(num_values)[: chosen.size]
        plane[...] = any_values(rng, dtype, num_values)[chosen]
    return batch


def normalised(seed: int = 0) -> np.ndarray:
    """As ToTensor and Normalize make them."""
    rng = np.random.default_rng(seed)
    mean, std = np.float32([[[0.485]], [[0.456]], [[0.406]]]), np.float32([[[0.229]], [[0.224]], [[0.225]]])  # fmt: skip
    return (rng.integers(0, 256, (8, 3, 56, 56)).astype("f4") / np.float32(255) - mean) / std


# ---- tables


@settings(max_examples=150, deadline=None)
@given(
    dtype=st.sampled_from(["f2", "f4", "f8"]),
    num_values=st.integers(1, 256),
    shape=st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(30, 70), st.integers(40, 70)),
    axes=st.permutations(range(4)),
    num_dims=st.integers(3, 4),
    seed=st.integers(0, 2**32),
)
@example("f4", 256, (4, 3, 40, 40), [0, 2, 3, 1], 4, 0)  # channels_last
@example("f8", 256, (4, 3, 40, 40), [0, 1, 2, 3], 4, 0)
def test_few_values_a_channel_come_back_to_the_bit_in_any_memory_order(
    dtype, num_values, shape, axes, num_dims, seed
):
    batch = image_batch(num_values, shape, dtype, seed)
    shown = batch.transpose(axes).copy().transpose(np.argsort(axes))[0 if num_dims == 3 else slice(None)]  # fmt: skip
    sent = round_trip(shown)
    is_plain = shown.flags.c_contiguous or tuple(axes) == (0, 2, 3, 1)
    if shown.nbytes >= MIN_NBYTES and is_plain:
        assert sent is not None and sent.codec is Codec.TABLES


@pytest.mark.parametrize(
    "shown",
    [
        normalised(),
        np.ascontiguousarray(normalised().transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
        np.ascontiguousarray(normalised().transpose(0, 2, 3, 1)),
        normalised()[0],
        normalised().reshape(2, 4, 3, 56, 56),
        np.ascontiguousarray(normalised().reshape(2, 4, 3, 56, 56).swapaxes(1, 2)),
        np.ascontiguousarray(normalised()[:, 0]),
        np.ascontiguousarray(normalised()[:, 0]).reshape(-1),
        normalised().astype("f8"),
    ],
    ids=["NCHW", "channels_last", "NHWC", "CHW", "NTCHW", "NCTHW", "NHW", "one axis", "float64"],
)
def test_normalised_images_travel_as_bytes(shown):
    sent = round_trip(shown)
    assert sent is not None and sent.codec is Codec.TABLES
    assert sum(len(part) for part in sent.parts[1:]) == shown.size


def test_memory_that_may_not_be_written_is_coded_too():
    shown = normalised()
    shown.flags.writeable = False
    assert round_trip(shown) is not None


def test_a_table_grows_with_what_later_batches_bring():
    encoder, batch = Encoder(still, still), image_batch(256)
    first = np.where(batch == batch[0, 0, 0, 5], batch[0, 0, 0, 6], batch)
    assert round_trip(first, encoder) is not None
    assert round_trip(batch, encoder) is not None


def test_values_of_other_batches_that_no_longer_come_are_forgotten():
    encoder = Encoder(still, still)
    assert all(round_trip(image_batch(seed=seed), encoder) for seed in range(4))


def test_a_257th_value_anywhere_is_refused():
    batch = image_batch(256)
    rare = np.setdiff1d(any_values(np.random.default_rng(1), "f4", 9)[7:], batch)[0]
    for place in ((0, 0, 0, 0), (3, 2, 39, 39), (1, 1, 20, 3)):
        spoilt = batch.copy()
        spoilt[place] = rare
        assert coded(spoilt) is None


def test_only_a_difference_in_bits_is_one():
    batch = np.zeros((3, 50, 50), "f4")
    batch[1, 3, 4] = -0.0
    sent = round_trip(batch)
    assert sent is not None


@pytest.mark.parametrize(
    "shown",
    [
        image_batch()[:, :, ::2],
        image_batch()[:, :, ::-1],
        np.broadcast_to(np.float32(1), (100, 100)),
        np.lib.stride_tricks.as_strided(np.zeros(9999, "f4"), (3, 5000), (4, 4)),
        image_batch().astype(">f4"),
        np.zeros(16 * 1024 + 1, np.uint8)[1:].view("f4"),
        np.zeros((100, 100), "c8"),
        np.zeros(9999, "M8[s]"),
        np.zeros(9999, object),
        np.zeros(9999, np.longdouble),
        np.zeros(MIN_NBYTES // 4 - 1, "f4"),
        np.zeros(0, "f4"),
        np.float32(1).reshape(()),
    ],
    ids=["gaps", "reversed", "broadcast", "overlapping", "big-endian", "unaligned",
         "complex", "times", "objects", "long double", "small", "empty", "scalar"],
)  # fmt: skip
def test_what_is_not_dense_native_large_numbers_is_left_alone(shown):
    assert coded(shown) is None


# ---- audio


def test_every_sample_of_16_bits_comes_back_to_the_bit():
    samples = np.arange(-32768, 32768, dtype="f4") / np.float32(32768)
    sent = round_trip(samples)
    assert sent is not None and sent.codec is Codec.PCM
    assert sent.nbytes < 0.51 * samples.nbytes


@pytest.mark.parametrize(
    "odd", [-0.0, 1.0, np.nan, np.inf, -np.inf, 1e30, -1.0000001, 1 / 65536, 1e-45, 2.0**40]
)
@pytest.mark.parametrize("place", [0, 5000, -1])
def test_a_sample_that_is_no_16_bits_is_refused(odd, place):
    samples = np.arange(-32768, 32768, dtype="f4") / np.float32(32768)
    samples[place] = odd
    assert coded(samples) is None


# ---- integers


@settings(max_examples=100, deadline=None)
@given(
    dtype=st.sampled_from(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]),
    low=st.integers(-(2**63), 2**64),
    spread=st.sampled_from([0, 1, 200, 60_000, 2**31, 2**62]),
    seed=st.integers(0, 2**32),
)
@example("u8", 2**64 - 2, 1, 0)
@example("i8", -(2**63), 2**62, 0)
@example("i8", -1, 255, 0)
def test_integers_come_back_whatever_type_would_hold_them(dtype, low, spread, seed):
    limits = np.iinfo(dtype)
    low = max(limits.min, min(limits.max, low))
    high = min(limits.max, low + spread)
    rng = np.random.default_rng(seed)
    round_trip(rng.integers(low, high, (4, 5000), dtype, endpoint=True))


@pytest.mark.parametrize(
    ("shown", "least_ratio"),
    [
        (np.tile(np.arange(1000, dtype="i8"), 20), 100),  # labels
        (np.random.default_rng(0).integers(0, 50_257, (16, 2048)), 3.9),  # token ids
        ((np.mgrid[:512, :512].sum(0) // 100).astype("u1"), 20),  # a mask
        (np.arange(50_000) % 7 == 0, 20),
        (np.random.default_rng(0).integers(-3, 3, (2, 3, 99, 99)).transpose(0, 3, 1, 2), 15),
    ],
    ids=["labels", "tokens", "mask", "bool", "any order"],
)
def test_integers_shrink(shown, least_ratio):
    sent = round_trip(shown)
    assert sent is not None and sent.codec is Codec.PACKED
    assert shown.nbytes / sent.nbytes > least_ratio


def test_integers_that_do_not_shrink_are_sent_as_they_are():
    assert coded(np.random.default_rng(0).integers(0, 256, 99_999).astype("u1")) is None


# ---- what comes from the wire


EXAMPLES = [
    image_batch(shape=(2, 3, 64, 64)),
    image_batch(shape=(2, 3, 64, 64)).transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2),
    np.arange(-32768, 32768, dtype="f4") / np.float32(32768),
    np.arange(9999, dtype="i8"),
    np.arange(99_999, dtype="u4").view("u1"),
]


def sent_example(number: int) -> tuple[Coded, int]:
    sent = coded(EXAMPLES[number])
    assert sent is not None
    return sent, EXAMPLES[number].nbytes


def decoded_or_refused(codec: int, head: bytes, payload: bytes, nbytes: int) -> bool:
    try:
        decoded(codec, head, payload, nbytes)
    except ValueError:
        return False
    return True


@settings(max_examples=400, deadline=None)
@given(
    number=st.integers(0, len(EXAMPLES) - 1),
    changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), max_size=4),
    head_changes=st.lists(st.tuples(st.integers(0, 23), st.integers(1, 255)), max_size=3),
    cut=st.sampled_from([0, 0, 0, 1, 2, 999]),
    extra=st.sampled_from([0, 0, 0, 1, 8]),
    more=st.sampled_from([0, 0, 0, -4, 1, 4, 4096]),
    codec=st.sampled_from([0, 0, 0, 1, 2, 3, 77]),
)
def test_mutated_bytes_are_refused_or_stay_inside(
    number, changes, head_changes, cut, extra, more, codec
):
    sent, nbytes = sent_example(number)
    payload, head = bytearray(b"".join(sent.parts)), bytearray(sent.head)
    for place, by in changes:
        payload[place % min(len(payload), 4000)] ^= by
    for place, by in head_changes:
        head[place] ^= by
    payload = payload[: len(payload) - cut] + bytes(extra)
    decoded_or_refused(codec or sent.codec, bytes(head), bytes(payload), nbytes + more)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_every_wrong_length_is_refused(number):
    sent, nbytes = sent_example(number)
    payload = b"".join(sent.parts)
    assert decoded_or_refused(sent.codec, sent.head, payload, nbytes)
    assert not decoded_or_refused(sent.codec, sent.head, payload, nbytes - 8)
    assert not decoded_or_refused(sent.codec, sent.head, payload, nbytes + 8)
    assert not decoded_or_refused(sent.codec, sent.head, payload[:-1], nbytes)
    assert not decoded_or_refused(sent.codec, sent.head, b"", nbytes)
    assert not decoded_or_refused(sent.codec, sent.head[:-1], payload, nbytes)
    assert not decoded_or_refused(sent.codec, b"", payload, nbytes)


def test_a_stream_that_holds_more_than_was_said_is_refused():
    large, small = coded(np.zeros(1 << 24, "u1")), coded(np.zeros(1 << 20, "u1"))
    assert large is not None and small is not None
    assert not decoded_or_refused(small.codec, small.head, large.parts[0], 1 << 20)
    assert not decoded_or_refused(large.codec, large.head, small.parts[0], 1 << 24)


def test_memory_that_is_read_only_or_not_aligned_is_refused():
    sent, nbytes = sent_example(0)
    payload, memory = b"".join(sent.parts), np.zeros(nbytes + 1, np.uint8)
    with pytest.raises(ValueError, match="not aligned, or read-only"):
        decode(sent.codec, sent.head, payload, memory[1:].data)
    with pytest.raises(ValueError, match="not aligned, or read-only"):
        decode(sent.codec, sent.head, payload, memoryview(bytes(nbytes)))


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_a_payload_at_any_address_will_do(number):
    sent, nbytes = sent_example(number)
    payload = memoryview(b"?" + b"".join(sent.parts))[1:]
    assert decoded(sent.codec, sent.head, payload, nbytes).tobytes() == in_memory_order(
        EXAMPLES[number]
    )


# ---- memory


def test_what_is_still_held_is_not_overwritten():
    encoder, batches = Encoder(still, still), [normalised(seed) for seed in range(6)]
    held = [encoder.encode(batch) for batch in batches]
    for sent, batch in zip(held, batches, strict=True):
        assert sent is not None
        back = decoded(sent.codec, sent.head, b"".join(sent.parts), batch.nbytes)
        assert back.tobytes() == batch.tobytes()


def test_memory_that_nobody_holds_is_used_again():
    encoder, addresses = Encoder(still, still), set()
    for seed in range(6):
        sent = encoder.encode(normalised(seed))
        assert sent is not None
        addresses.add(np.frombuffer(sent.parts[1], np.uint8).ctypes.data)
        del sent
    assert len(addresses) == 1


# ---- whether it pays


def told(raw_nbytes: int, sent_nbytes: int, gb_per_s: float, now_s: float = 0.0) -> Worth:
    """A kind of tensor that was coded three times at this speed; `now_s` is when that ended."""
    worth = Worth()
    for _ in range(Worth.NUM_FIRST):
        worth.succeeded(raw_nbytes, sent_nbytes, raw_nbytes / gb_per_s / 1e9, now_s)
    return worth


def test_images_are_coded_on_a_thin_link_and_not_on_loopback():
    worth = told(40_000_000, 10_000_000, gb_per_s=4)
    assert worth.gains(GIGABIT)
    assert worth.gains(10 * GIGABIT)
    assert not worth.gains(LOOPBACK)


def test_a_link_of_unknown_speed_is_taken_for_a_thin_one():
    assert told(40_000_000, 10_000_000, gb_per_s=4).gains(None)
    assert not told(40_000_000, 10_000_000, gb_per_s=0.1).gains(None)


def test_what_hardly_shrinks_is_not_coded_on_any_link():
    worth = told(1_000_000, 950_000, gb_per_s=10)
    assert not any(worth.gains(link) for link in (1e3, 1e6, GIGABIT, LOOPBACK, None))


def test_nothing_is_known_to_gain_before_it_was_tried():
    worth = Worth()
    assert not worth.gains(GIGABIT)
    assert worth.wants_a_try(GIGABIT, now_s=0.0)


def test_one_slow_time_changes_nothing_two_do():
    worth = told(1_000_000, 250_000, gb_per_s=4)
    worth.succeeded(1_000_000, 250_000, 1.0, now_s=1.0)
    assert worth.gains(GIGABIT)
    worth.succeeded(1_000_000, 250_000, 1.0, now_s=2.0)
    assert not worth.gains(GIGABIT)


def test_what_did_not_gain_is_tried_again_after_a_rest():
    worth = told(1_000_000, 250_000, gb_per_s=0.1, now_s=7.0)  # 10 ms a time
    assert not worth.wants_a_try(GIGABIT, now_s=7.4)
    assert worth.wants_a_try(GIGABIT, now_s=7.51)


def test_what_cannot_be_coded_is_tried_again_after_a_rest():
    worth = Worth()
    worth.failed(spent_s=0.1, now_s=1.0)
    assert not worth.wants_a_try(GIGABIT, now_s=5.9)
    assert worth.wants_a_try(GIGABIT, now_s=6.1)


def test_a_link_that_became_thin_turns_the_codec_on_at_once():
    worth = told(40_000_000, 10_000_000, gb_per_s=4)
    assert not worth.wants_a_try(LOOPBACK, now_s=0.0)
    assert worth.wants_a_try(GIGABIT, now_s=0.0)


class Clock:
    """Goes on by a millisecond each time it is read: so long does every encoding take."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.num_looks = 0

    def __call__(self) -> float:
        self.now_s += 0.001
        self.num_looks += 1
        return self.now_s


def test_the_same_tensors_are_coded_on_one_link_and_not_on_the_other():
    batch = np.zeros((64, 3, 56, 56), "f4")  # 2.4 MB in 1 ms
    thin, thick = Encoder(Clock(), Clock()), Encoder(Clock(), Clock())
    assert all(thin.encode(batch, GIGABIT) for _ in range(9))
    assert not any(thick.encode(batch, LOOPBACK) for _ in range(9))


def test_a_hopeless_tensor_is_hardly_ever_looked_at():
    clock = Clock()
    encoder, noise = (
        Encoder(clock, Clock()),
        np.random.default_rng(0).normal(size=(3, 99, 99)).astype("f4"),
    )
    assert encoder.encode(noise) is None
    before = clock.num_looks
    assert not any(encoder.encode(noise) for _ in range(30))
    assert clock.num_looks - before <= 31, "one look each, to see that it is too early"


def test_kinds_without_end_are_not_all_remembered():
    encoder = Encoder(still, still)
    for num_channels in range(600):
        encoder.encode(np.zeros((num_channels + 1, 99, 99), "u1"))
    assert len(encoder._kinds) <= 256


# ---- numba


def test_importing_it_brings_neither_torch_nor_numba():
    code = "import sys, stoker.wire.lossless; print({'torch', 'numba'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "set()"
