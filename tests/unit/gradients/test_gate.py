"""What costs say is worth a trial, and how a trial ends."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stoker.gradients import hook
from stoker.gradients.codes import Code, capped
from stoker.gradients.gate.costs import REACH, Costs, Line, best, fitted
from stoker.gradients.gate.trial import MAX_ROUNDS, NUM_TIMED, NUM_WARM, Trial

GIGABIT = 1 / 125e6  # seconds a byte
NO_LIMIT = 1 / 5e9
KERNELS = {Code.INT4: 8e-10, Code.INT8: 8e-10, Code.BF16: 8e-10, Code.FP32: 8e-10}
BUCKET = 6_250_000


def costs(s_per_nbyte, latency_s=1e-4, kernels=KERNELS, measured_nbytes=64 << 20):
    lines = Line(latency_s, 1.5 * s_per_nbyte), Line(2 * latency_s, 1.5 * s_per_nbyte)
    return Costs(*lines, kernels, measured_nbytes)


@given(st.floats(0, 1e-2), st.floats(1e-11, 1e-6))
def test_a_line_is_found_through_its_own_points(fixed_s, s_per_nbyte):
    line = Line(fixed_s, s_per_nbyte)
    found = fitted([(n, line.at(n)) for n in (16e3, 64e3, 256e3, 1e6, 4e6)])
    assert found.at(1e8) == pytest.approx(line.at(1e8), rel=1e-6)
    assert found.at(16e3) == pytest.approx(line.at(16e3), rel=1e-6)


@given(st.lists(st.tuples(st.floats(1, 1e9), st.floats(1e-6, 1e3)), min_size=1))
def test_no_line_is_ever_negative(points):
    found = fitted(points)
    assert found.fixed_s >= 0 and found.s_per_nbyte >= 0


def test_on_a_thin_link_the_fewest_bits_are_best_that_are_permitted():
    thin = costs(GIGABIT)
    assert best(thin, [BUCKET], [Code.INT4]) is Code.INT4
    assert best(thin, [BUCKET], [Code.INT8]) is Code.INT8
    assert best(thin, [BUCKET], [Code.BF16]) is Code.BF16
    assert best(thin, [BUCKET, 1000], [Code.INT4, Code.FP32]) is Code.INT4


def test_what_was_measured_on_small_buffers_alone_dooms_no_large_bucket():
    """A burst that a link lets through, on a machine that is busy: it looks as fast as memory."""
    slow = dict.fromkeys(Code, 1e-7)
    flattered = costs(NO_LIMIT, kernels=slow, measured_nbytes=64 << 10)
    assert best(flattered, [BUCKET], [Code.INT4]) is Code.INT4
    assert best(flattered, [BUCKET], [Code.INT8]) is Code.INT8
    assert best(flattered, [REACH * (16 << 10)], [Code.INT4]) is None


def test_where_kernels_take_longer_than_the_link_saves_nothing_is_tried():
    slow = dict.fromkeys(Code, 1e-7)
    assert best(costs(NO_LIMIT, kernels=slow), [BUCKET], [Code.INT4]) is None


def test_a_bucket_of_what_is_exact_is_left_to_ddp():
    assert best(costs(GIGABIT), [1000, 20], [Code.FP32, Code.FP32]) is None


def test_a_code_whose_kernel_is_slow_is_passed_over_for_the_next():
    slow = KERNELS | {Code.INT4: 1e-6}
    assert best(costs(GIGABIT, kernels=slow), [BUCKET], [Code.INT4]) is Code.INT8


def test_a_cap_takes_bits_from_nobody():
    assert capped([Code.INT4, Code.FP32], Code.INT8) == [Code.INT8, Code.FP32]
    assert capped([Code.BF16], Code.INT4) == [Code.BF16]


def run(trial, plain_s, coded_s, limit=200):
    """Steps until the verdict: how many there were of each way."""
    num = {True: 0, False: 0}
    for _ in range(limit):
        num[trial.is_coded] += 1
        if trial.step(coded_s if trial.is_coded else plain_s):
            trial.judge(*trial.medians())
        if trial.verdict:
            return num
    raise AssertionError("no verdict")


@pytest.mark.parametrize(
    ("plain_s", "coded_s", "is_coded", "num_rounds"),
    [
        (1.0, 0.2, True, 1), (0.2, 1.0, False, 1), (1.0, 0.9, True, MAX_ROUNDS),
        (1.0, 1.0, False, MAX_ROUNDS), (1.0, 0.99, False, MAX_ROUNDS),
        (1.0, 1.1, False, MAX_ROUNDS),
    ],
)  # fmt: skip
def test_the_faster_way_stays_and_codes_that_gain_little_do_not(
    plain_s, coded_s, is_coded, num_rounds
):
    trial = Trial()
    num = run(trial, plain_s, coded_s)
    assert trial.verdict == (is_coded, plain_s, coded_s)
    assert trial.is_coded is is_coded
    assert num[False] == num_rounds * (NUM_TIMED + 1)
    assert num[True] == num_rounds * (NUM_TIMED + 1) + NUM_WARM
    assert trial.step(5.0) is False and trial.is_coded is is_coded


def test_the_first_step_of_a_row_is_not_counted():
    trial, seen = Trial(), []
    times = {True: itertools.cycle([9.0, 1.0, 1.0, 1.0]), False: itertools.cycle([9.0, 2.0, 2.0, 2.0])}  # fmt: skip
    for _ in range(NUM_WARM):
        trial.step(100.0)
    while trial.verdict is None:
        if trial.step(next(times[trial.is_coded])):
            seen.append(trial.medians())
            trial.judge(*trial.medians())
    assert seen == [(2.0, 1.0)]


class Model(torch.nn.Linear):
    """What is asked of a DistributedDataParallel before its device."""

    _delay_all_reduce_all_params = _use_python_reducer = False
    _comm_hooks = ()


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("_delay_all_reduce_all_params", True, "delays the averages"),
        ("_comm_hooks", ("one",), "hook of its own"),
        ("_use_python_reducer", True, "python_reducer"),
        ("lazy_bucket_allocation", True, "allocated anew"),  # of torch 2.15
    ],
)
def test_models_that_average_in_another_way_are_left_as_they_are(name, value, why):
    model = Model(2, 2, device="meta")
    assert "it is on meta" in hook.why_not(model)
    setattr(model, name, value)
    assert why in hook.why_not(model)
