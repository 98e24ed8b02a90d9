"""What is tried again, how long, and with which pauses."""

import pytest

from stoker.clock import Deadline
from stoker.storage.origins import Again, Denied
from stoker.storage.reading.retry import FIRST_PAUSE_S, LONGEST_PAUSE_S, patiently


class Clock:
    def __init__(self):
        self.now_s = 0.0
        self.pauses = []

    def __call__(self):
        return self.now_s

    def pause(self, seconds):
        self.pauses.append(seconds)
        self.now_s += seconds


def run(fails, limit_s):
    clock, told = Clock(), []

    def call():
        if fails:
            raise fails.pop(0)
        return "bytes"

    deadline = Deadline(limit_s, clock)
    return clock, told, lambda: patiently(call, deadline, clock.pause, told.append)


def test_what_fails_for_a_while_is_tried_again_with_growing_pauses():
    clock, told, call = run([Again("503")] * 9, 60.0)
    assert call() == "bytes"
    assert len(told) == len(clock.pauses) == 9
    for k, pause_s in enumerate(clock.pauses):
        whole_s = min(FIRST_PAUSE_S * 2**k, LONGEST_PAUSE_S)
        assert whole_s / 2 <= pause_s <= whole_s


def test_the_last_failure_is_raised_within_the_time_limit():
    clock, _, call = run([Again(f"{k}") for k in range(1000)], 10.0)
    with pytest.raises(Again):
        call()
    assert 5.0 < clock.now_s <= 10.0


def test_an_answer_that_is_final_is_not_asked_for_again():
    clock, told, call = run([Denied("403")], 10.0)
    with pytest.raises(Denied):
        call()
    assert clock.pauses == told == []
