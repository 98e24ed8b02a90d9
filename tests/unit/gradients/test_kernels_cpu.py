"""What a block's bytes say, against the rule in numpy, and what they must never say."""

import itertools
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from stoker.gradients.blocks.cpu import NEAREST, dequantise, quantise, reduce
from stoker.gradients.blocks.layout import NOWHERE, Segment, layout_of
from stoker.gradients.codes import BLOCK_LEN, Code

WHOLE = [Code.INT4, Code.INT8]
LEVELS = {Code.INT4: 7, Code.INT8: 127}
LENGTHS = [1, 2, 3, 15, 16, 17, 1023, 1024, 1025, 2047, 4999]
SEED = np.uint64(0x1234_5678_9ABC_DEF1)
GUARD, NEVER = 64, 0xA5


def there(values, code, seed=NEAREST, residuals=None):
    """The values' message, whose surroundings are seen to stay as they are."""
    values = np.asarray(values, np.float32)
    memory = NOWHERE if residuals is None else 0
    layout = layout_of([Segment(0, len(values), code, memory)], 1)
    kept = np.empty(0, np.float32) if residuals is None else residuals
    room = np.full(layout.message_nbytes + 2 * GUARD, NEVER, np.uint8)
    message = room[GUARD:-GUARD]
    quantise(values, layout.blocks, message, kept, seed)
    assert (room[:GUARD] == NEVER).all() and (room[-GUARD:] == NEVER).all()
    return layout, message


def back(layout, message, length):
    room = np.full(length + 2 * GUARD, NEVER, np.float32)
    dequantise(message, layout.blocks, room[GUARD:-GUARD])
    assert (room[:GUARD] == NEVER).all() and (room[-GUARD:] == NEVER).all()
    return room[GUARD:-GUARD]


def there_and_back(values, code, seed=NEAREST):
    return back(*there(values, code, seed), len(values))


def drawn(length, seed=0):
    return np.random.default_rng(seed).standard_normal(length).astype(np.float32)


def by_rule(values, num_levels):
    """Code's docstring, block by block."""
    out = np.empty_like(values)
    for first in range(0, len(values), BLOCK_LEN):
        block = values[first : first + BLOCK_LEN]
        largest = np.abs(block).max()
        whole = np.rint(block * (np.float32(num_levels) / largest))
        out[first : first + BLOCK_LEN] = largest * (whole * np.float32(1 / num_levels))
    return out


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("code", WHOLE)
def test_nearest_is_the_rule_to_the_bit(code, length):
    values = drawn(length)
    assert np.array_equal(there_and_back(values, code), by_rule(values, LEVELS[code]))


@pytest.mark.parametrize("seed", [NEAREST, SEED], ids=["nearest", "stochastic"])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("code", WHOLE)
def test_the_error_is_at_most_a_half_step_or_a_step(code, length, seed):
    values = drawn(length)
    steps = 0.5 if seed == NEAREST else 1.0
    for first in range(0, length, BLOCK_LEN):
        block = values[first : first + BLOCK_LEN]
        error = np.abs(there_and_back(block, code, seed) - block).max()
        assert error <= np.abs(block).max() / LEVELS[code] * steps * 1.0001


@pytest.mark.parametrize("seed", [NEAREST, SEED], ids=["nearest", "stochastic"])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("code", Code)
def test_zeros_and_constants_are_exact(code, length, seed):
    for value in (0.0, 1.0, -3.0, 2.0**-60, -(2.0**60)):
        values = np.full(length, value, np.float32)
        assert np.array_equal(there_and_back(values, code, seed), values)
    values = drawn(length)
    values[::2] = 0
    assert (there_and_back(values, code, seed)[::2] == 0).all()


@pytest.mark.parametrize("code", WHOLE)
@given(st.floats(2**-100, 2**100, width=32))
def test_any_constant_is_exact(code, value):
    assert there_and_back([value, -value, 0], code).tolist() == [value, -value, 0]


@pytest.mark.parametrize("code", WHOLE)
@pytest.mark.parametrize("value", [1.1916451, 1.0, 1.9999999, 3.3333333])
def test_the_largest_is_exact_however_it_is_rounded(code, value):
    """Its quotient may be a float below the number of levels, and the draw the lowest of 65,536."""
    values = np.full(500 * BLOCK_LEN, value, np.float32)
    assert np.array_equal(there_and_back(values, code, SEED), values)


@pytest.mark.parametrize("code", Code)
@given(st_numpy.arrays(np.float32, st.integers(1, 1500), elements=st.floats(width=32)))
def test_what_is_not_finite_stays_so_and_nothing_else_becomes_so(code, values):
    if code is Code.BF16:  # rounds what is next to the largest float up to infinity
        values = np.where(np.isfinite(values) & (np.abs(values) > 3e38), np.float32(1), values)
    found = there_and_back(values, code)
    for first in range(0, len(values), BLOCK_LEN):
        block = slice(first, first + BLOCK_LEN)
        is_finite = np.isfinite(values[block])
        if code in WHOLE:
            assert np.isfinite(found[block]).all() == is_finite.all()
        else:
            assert np.array_equal(np.isfinite(found[block]), is_finite)


@pytest.mark.parametrize("length", LENGTHS)
def test_fp32_is_as_it_is(length):
    values = drawn(length)
    assert there_and_back(values, Code.FP32).tobytes() == values.tobytes()


@pytest.mark.parametrize("length", LENGTHS)
def test_bf16_is_torchs_own(length):
    torch = pytest.importorskip("torch")
    values = np.concatenate([drawn(length), [np.inf, -np.inf, 3.4e38]]).astype(np.float32)
    expected = torch.from_numpy(values).bfloat16().float().numpy()
    assert np.array_equal(there_and_back(values, Code.BF16), expected)


@pytest.mark.parametrize("code", WHOLE)
def test_stochastic_rounding_is_right_on_average_and_reproducible(code):
    values = drawn(BLOCK_LEN)
    seeds = [np.uint64(each) for each in np.random.default_rng(1).integers(1, 2**63, 400)]
    found = np.array([there_and_back(values, code, seed) for seed in seeds])
    step = np.abs(values).max() / LEVELS[code]
    # The mean of 400 draws of a step's size: 5 standard deviations of the worst element.
    assert np.abs(found.mean(0) - values).max() < 5 * 0.5 * step / 20
    assert len({each.tobytes() for each in found}) == len(seeds)
    assert np.array_equal(found[0], there_and_back(values, code, seeds[0]))


@pytest.mark.parametrize("code", WHOLE)
def test_stochastic_rounding_does_not_depend_on_who_works_on_which_block(code):
    values = drawn(40 * BLOCK_LEN + 7)
    layout, message = there(values, code, SEED)
    parts = np.full_like(message, NEVER)
    none = np.empty(0, np.float32)
    cuts = [0, 3, 17, len(layout.blocks)]
    threads = [
        threading.Thread(target=quantise, args=(values, layout.blocks[a:b], parts, none, SEED))
        for a, b in itertools.pairwise(cuts)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.array_equal(parts, message)


@pytest.mark.parametrize("code", [Code.INT4, Code.INT8, Code.BF16])
def test_what_a_message_lacks_is_remembered_and_sent_later(code):
    values, length = drawn(2500), 2500
    residuals = np.zeros(length, np.float32)
    sent = np.zeros(length, np.float64)
    for step in range(1, 33):
        layout, message = there(values, code, residuals=residuals)
        sent += back(layout, message, length)
        assert np.allclose(step * values.astype(np.float64) - sent, residuals, atol=1e-3)
    assert (
        np.abs(sent / 32 - values).max() < np.abs(there_and_back(values, code) - values).max() / 8
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("code", [Code.INT4, Code.INT8, Code.BF16])
def test_a_residual_outlives_what_is_not_finite(code, bad):
    residuals = drawn(1500, seed=5)
    before = residuals.copy()
    values = drawn(1500)
    values[1200] = bad
    there(values, code, residuals=residuals)
    assert np.array_equal(residuals[1024:], before[1024:])
    assert np.isfinite(residuals).all() and not np.array_equal(residuals[:1024], before[:1024])


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("code", Code)
def test_a_shard_is_added_up_in_the_order_of_the_ranks(code, num_ranks):
    length = 3000
    messages = [there(drawn(length, seed=rank), code) for rank in range(num_ranks)]
    layout = messages[0][0]
    received = np.concatenate([message for _, message in messages])
    out = np.full(layout.message_nbytes, NEVER, np.uint8)
    reduce(received, num_ranks, layout.blocks, np.float32(num_ranks), out, NEAREST)
    total = np.zeros(length, np.float32)
    for _, message in messages:
        total += back(layout, message, length)
    _, expected = there(total / np.float32(num_ranks), code)
    assert np.array_equal(back(layout, out, length), back(layout, expected, length))


@pytest.mark.parametrize("code", Code)
@pytest.mark.parametrize("seed", range(20))
def test_any_bytes_can_be_read(code, seed):
    layout = layout_of([Segment(0, 2049, code)], 1)
    message = np.random.default_rng(seed).integers(0, 256, layout.message_nbytes, np.uint8)
    assert len(back(layout, message, 2049)) == 2049
