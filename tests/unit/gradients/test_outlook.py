"""What is told of fewer bits without a try: from what DDP has timed, and never more than it has."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stoker.gradients.filters import sent_of
from stoker.gradients.gate import Seen, Sent, outlook_of, words

FIRST = Seen(step=3, at_s=100.0, comm_s=0.0, overlap_s=0.0, num_buckets=4)
ADAM = Sent(num=25_000_000, frac=4.1 / 32, device="cpu")


def last(step_s, comm_s, overlap_s, *, num_buckets=4, step=10):
    return Seen(step, 100.0 + step_s * (step - 3), comm_s, overlap_s, num_buckets)


def test_a_step_that_waits_for_a_thin_link_is_told_what_codes_would_leave_of_it():
    found = outlook_of(FIRST, last(1.5, 1.25, 0.2), ADAM)
    assert found.step_s == pytest.approx(1.5)
    assert found.waits_s == pytest.approx(1.05)
    assert found.coded_s == pytest.approx(0.45 + 1.25 * 4.1 / 32 + 25e6 * 1.5e-9)
    assert found.gain == pytest.approx(2.3, rel=0.05)
    assert words(found) == (
        "a step of 1.5 s waits 1.05 s for them; --gradients 4bit, with loss, should make it "
        "648 ms, 2.3 times as fast (docs/gradients.md)"
    )


def test_a_step_that_hides_its_gradients_gains_little():
    found = outlook_of(FIRST, last(0.5, 0.21, 0.2), ADAM)
    assert found.gain < 1.1
    assert (
        words(found) == "a step of 500 ms waits 10 ms for them: fewer bits would gain little here"
    )


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (FIRST, last(1, 1, 0, step=7)),
        (FIRST._replace(step=2), last(1, 1, 0)),
        (FIRST, last(1, 1, 0, num_buckets=0)),
    ],
)
def test_too_few_steps_tell_nothing(first, then):
    assert outlook_of(first, then, ADAM) is None


@given(
    st.floats(1e-4, 10), st.floats(0, 10), st.floats(0, 10), st.integers(1, 100),
    st.integers(1, 10**9), st.floats(0.1, 1), st.sampled_from(["cpu", "cuda"]),
)  # fmt: skip
def test_no_promise_is_more_than_the_wait(
    step_s, comm_s, overlap_s, num_buckets, num, frac, device
):
    then = last(step_s, comm_s, overlap_s, num_buckets=num_buckets)
    found = outlook_of(FIRST, then, Sent(num, frac, device))
    assert found.step_s - found.waits_s <= found.coded_s * (1 + 1e-9)
    assert 0 < found.coded_s <= found.step_s * (1 + 1e-9)


def test_what_is_sent_is_what_filters_leave_of_trainable_parameters():
    model = torch.nn.Sequential(torch.nn.Linear(1000, 1000), torch.nn.Linear(1000, 10))
    sent = sent_of(model)
    assert sent.num == 1_000_000 + 1000 + 10_000 + 10
    coded = 1_000_000 * 4 + 32 * 11_010
    assert sent.frac == pytest.approx(coded / (32 * sent.num))
    model[0].requires_grad_(False)
    assert sent_of(model).num == 10_010
    assert sent_of(model.half()).frac == 1.0  # the head alone, which goes as it is
