"""Marks where there is no GPU, where CUDA only seems to be there, and with a driver that answers as asked."""

import signal
from types import SimpleNamespace

import pytest
import torch

from stoker.stalls import device
from stoker.stalls.device import Marks

IS_IN_USE = {0: True, 1: True, 2: False}  # by device


class Event:
    cuda_event = 7

    def __init__(self):
        self.num_recorded = 0

    def record(self):
        self.num_recorded += 1


class Driver:
    answer, refuses, relaxed = 0, 0, []

    def cuThreadExchangeStreamCaptureMode(self, mode):  # noqa: N802  # the driver's name
        self.relaxed.append(mode._obj.value)
        return self.refuses

    def cuEventQuery(self, event):  # noqa: N802
        assert event.value == Event.cuda_event
        return self.answer


@pytest.fixture
def cuda(monkeypatch):
    """A stand-in for torch.cuda, and for CUDA's driver."""
    events = []
    monkeypatch.setattr(device.ctypes, "CDLL", lambda name: Driver())
    made = SimpleNamespace(
        is_initialized=lambda: True,
        is_current_stream_capturing=lambda: False,
        current_device=lambda: 0,
        Event=lambda: events.append(Event()) or events[-1],
        events=events,
    )
    monkeypatch.setattr(torch, "cuda", made)
    monkeypatch.setattr(torch._C, "_cuda_hasPrimaryContext", IS_IN_USE.__getitem__, raising=False)
    return made


def test_without_a_gpu_in_use_nothing_is_behind():
    marks = Marks()
    marks.mark()
    assert not marks.is_behind()


def test_what_only_claims_to_be_cuda_is_asked_once(monkeypatch):
    asked = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: asked.append(1) or True)
    marks = Marks()
    marks.mark()
    marks.mark()
    assert len(asked) == 1 and not marks.is_behind()


@pytest.mark.parametrize(("answer", "is_behind"), [(600, True), (0, False), (700, False)])
def test_the_driver_says_whether_the_last_mark_was_reached(cuda, monkeypatch, answer, is_behind):
    monkeypatch.setattr(Driver, "answer", answer)
    monkeypatch.setattr(Driver, "relaxed", [])
    marks = Marks()
    assert not marks.is_behind()  # none was made
    marks.mark()
    assert marks.is_behind() is is_behind
    assert Driver.relaxed == [2]


def test_a_driver_that_gives_no_relaxed_mode_is_not_asked(cuda, monkeypatch):
    monkeypatch.setattr(Driver, "refuses", 1)
    monkeypatch.setattr(Driver, "answer", 600)
    marks = Marks()
    marks.mark()
    assert not marks.is_behind()


def test_there_is_an_event_a_device_and_none_in_a_graph(cuda):
    marks = Marks()
    for number in (0, 0, 1):
        cuda.current_device = lambda number=number: number
        marks.mark()
    cuda.is_current_stream_capturing = lambda: True
    marks.mark()
    assert [event.num_recorded for event in cuda.events] == [2, 1]


def test_a_device_that_the_script_does_not_use_gets_no_event(cuda):
    cuda.current_device = lambda: 2
    marks = Marks()
    marks.mark()
    assert not cuda.events and not marks.is_behind()


def test_an_error_of_the_scripts_signal_handler_passes_through(cuda):
    class Mine(Exception):
        pass

    def handler(*_):
        raise Mine

    def asked():
        signal.raise_signal(signal.SIGUSR1)
        return 0

    cuda.current_device = asked
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Mine):
            Marks().mark()
    finally:
        signal.signal(signal.SIGUSR1, before)
