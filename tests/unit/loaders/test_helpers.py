"""How many workers of other machines a loop asks for, and when it says so."""

import types

import pytest
import torch

pytest.importorskip("cryptography")

from stoker.loaders.driver import helpers as module
from stoker.loaders.driver.helpers import MEAN_OF, PAUSE_S, Helpers
from stoker.remote.net.control import Want
from stoker.shared_tensors import MAX_NBYTES, SharedTensors


class Fleet:
    """A fleet of `--workers 0:8` that remembers what it was told."""

    bounds, num_cores, is_gone, pool = (0, 8), 2, False, None

    def __init__(self):
        self.said = []

    def hear(self):
        pass

    def say(self, message):
        self.said.append(message)


@pytest.fixture
def loop(monkeypatch):
    """The helpers of a loop that has measured its steps and batches; and their clock."""
    now = [1000.0]
    monkeypatch.setattr(module, "now_s", lambda: now[0])
    monkeypatch.setattr(module.forks, "also_spare", [])
    fleet = Fleet()
    made = Helpers(fleet, types.SimpleNamespace(fingerprint=""), frozenset())
    for _ in range(MEAN_OF):
        made._made.add(1.0)
        made._work.step.add(0.5)
    made.offer(limit=8)
    yield made, fleet, now
    del module._known[fleet]


def test_a_loop_that_goes_on_does_not_repeat_itself(loop):
    made, fleet, now = loop
    said = list(fleet.said)
    for _ in range(1000):
        now[0] += PAUSE_S / 100
        made.offer(limit=8)
    assert fleet.said == said


def test_a_loop_that_has_paused_says_again_what_it_wants(loop):
    made, fleet, now = loop
    said = list(fleet.said)
    now[0] += PAUSE_S + 1
    made.offer(limit=8)
    made.offer(limit=8)
    assert fleet.said[len(said) :] == [Want(module._known[fleet].num_asked)]


@pytest.mark.parametrize(("size", "num_left"), [(1, 1), (MAX_NBYTES, 0)])
def test_others_leave_when_a_tensor_changes_that_they_have_a_copy_of(monkeypatch, size, num_left):
    monkeypatch.setattr(module, "_known", {})
    monkeypatch.setattr(module.forks, "also_spare", [])
    left = []
    tensor = torch.zeros(size)
    away = types.SimpleNamespace(leave=lambda: left.append(True))
    made = Helpers(Fleet(), away, frozenset(), SharedTensors([tensor.untyped_storage()]))
    # Of a larger one nobody has: its job is refused, and says why.
    assert not made.leave_if_written()
    tensor += 1
    assert made.leave_if_written() == bool(num_left)
    assert len(left) == num_left
