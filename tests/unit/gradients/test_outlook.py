"""What is told of fewer bits without a try: from what DDP has timed, and never more than it has."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stoker.gradients.filters import sent_of
from stoker.gradients.gate import Seen, Sent, outlook_of, words

FIRST = Seen(step=3, at_s=100.0, comm_s=0.0, overlap_s=0.0, num_buckets=4)  # means: of three steps
ADAM = Sent(num=25_000_000, frac=4.1 / 32, device="cpu")


def last(step_s, comm_s, overlap_s, *, num_buckets=4, step=10, first=FIRST):
    """Of steps that took that since the first look: DDP's own means are of all it has timed."""
    look = Seen(step, 100.0 + step_s * (step - 3), comm_s, overlap_s, num_buckets)
    num, since = look.num_timed, look.num_timed - first.num_timed
    mean = lambda a, b: (a * first.num_timed + b * since) / num  # noqa: E731
    comm_s, overlap_s = mean(first.comm_s, comm_s), mean(first.overlap_s, overlap_s)
    return look._replace(comm_s=comm_s, overlap_s=overlap_s)


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


def test_a_first_step_that_took_long_is_not_counted():
    late = FIRST._replace(comm_s=1.0, overlap_s=0.1)
    found = outlook_of(late, last(0.1, 0.01, 0.01, first=late), ADAM)
    assert found.waits_s == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (FIRST, last(1, 1, 0, step=5)),
        (last(1, 1, 0, step=10), last(1, 1, 0, step=250)),
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
    model[0].requires_grad_(True)
    assert sent_of(model.double()).frac == 1.0  # which is left to DDP
