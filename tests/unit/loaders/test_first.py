"""What a decision about a loader without workers does when it fails."""

import signal

import pytest

from stoker.loaders.in_process.first import Decision, FirstBatches, InProcessOptions


def deciding() -> tuple[FirstBatches, list[Decision]]:
    told: list[Decision] = []
    made = FirstBatches.__new__(FirstBatches)
    made._options = InProcessOptions(
        num_slots=2, num_cores=2, fleet=None, capacity=0, say=None, may_hedge=False, arena_nbytes=0,
        tell=told.append, digest=str, usual=None, ended=lambda usual: None,
        find_wish=lambda: None,
    )  # fmt: skip
    return made, told


def test_an_error_of_ours_is_told_and_torch_makes_the_batches():
    made, told = deciding()
    made._decide(lambda first: [][0])
    assert made._step is FirstBatches._here
    assert [verdict.is_failure for verdict in told] == [True]


def test_what_a_signal_handler_raises_meanwhile_is_the_scripts():
    def interrupt(signum, frame):
        raise TimeoutError

    made, told = deciding()
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(TimeoutError):
            made._decide(lambda first: signal.raise_signal(signal.SIGUSR1))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (made._step, told) == (FirstBatches._here, [])
