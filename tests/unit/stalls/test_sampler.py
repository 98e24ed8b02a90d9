"""A thread is looked at while it runs, and no process is forked meanwhile."""

import _thread
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from stoker.stalls.kinds import Kind
from stoker.stalls.sampler import Sampler, _has_device, sampler_of


class Adds:
    """What was seen, and an event for each."""

    def __init__(self):
        self.seen, self.came = [], threading.Event()

    def __call__(self, kind, seconds):
        self.seen.append((kind, seconds))
        self.came.set()

    def wait(self):
        self.came.clear()
        assert self.came.wait(10)


@pytest.fixture
def adds():
    return Adds()


@pytest.fixture
def sampler(adds):
    made = sampler_of(adds, float, bool, _thread.get_ident())
    yield made
    made.stop()


def threads():
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


ACCELERATORS = {
    "none": (None, None, False),
    "one that says that it is in use": ("npu", lambda: True, True),
    "one that is not": ("npu", lambda: False, False),
    "one that does not say": ("mps", None, True),
}


@pytest.mark.parametrize(("name", "is_initialized", "has"), ACCELERATORS.values(), ids=ACCELERATORS)
def test_an_accelerator_of_any_kind_is_a_device(name, is_initialized, has):
    module = SimpleNamespace(**{"is_initialized": is_initialized} if is_initialized else {})
    found = SimpleNamespace(type=name) if name else None
    fake = SimpleNamespace(
        cuda=SimpleNamespace(is_initialized=lambda: False),
        accelerator=SimpleNamespace(current_accelerator=lambda: found),
        **{name: module} if name else {},
    )
    assert _has_device(fake) is has
    assert _has_device(torch) is torch.cuda.is_initialized()


def test_a_thread_is_looked_at_until_it_is_over(adds):
    before = threads()
    sampler = sampler_of(adds, float, bool, _thread.get_ident())
    began = time.monotonic()
    for _ in range(5):
        adds.wait()
    took_s = time.monotonic() - began
    assert threads() - before == {sampler._tid}
    sampler.stop()
    assert not threads() - before
    seen_s = sum(seconds for _, seconds in adds.seen)
    assert seen_s == pytest.approx(took_s, abs=0.3 * took_s + 0.05)
    assert {kind for kind, _ in adds.seen} == {Kind.OTHER}
    sampler.stop()


def test_threads_of_the_scripts_are_as_many_as_without(adds):
    before = threading.enumerate()
    sampler = sampler_of(adds, float, bool, _thread.get_ident())
    adds.wait()
    assert threading.enumerate() == before
    sampler.stop()


def test_it_ends_before_a_fork_and_goes_on_after_it(sampler, adds):
    adds.wait()
    first = sampler._tid
    before = threads() - {first}
    sampler.pause()
    assert first not in threads()
    num = len(threads())
    sampler.resume()
    assert (
        len(threads()) == num
    )  # none begins by itself: it would be in the way of what the script does next
    sampler.start()
    adds.wait()
    second = sampler._tid
    pid = os.fork()
    if not pid:
        os._exit(len(threads()) != 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert second not in threads()
    sampler.start()
    sampler.start()
    adds.wait()
    assert threads() - before == {sampler._tid}


def test_python_warns_of_no_thread_at_a_fork(tmp_path):
    """Python 3.12 does so; in one of its own, for it counts all threads of a process, torch's too."""
    script = tmp_path / "forks.py"
    script.write_text(
        "import _thread, os\n"
        "from stoker.stalls.kinds import Kinds\n"
        "from stoker.stalls.sampler import Sampler\n"
        "s = Sampler(Kinds('/t', frozenset(), bool, float, bool), lambda *_: None)\n"
        "s.thread = _thread.get_ident()\n"
        "s.start()\n"
        "for _ in range(50):\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        os._exit(len(os.listdir('/proc/self/task')) != 1)\n"
        "    assert os.waitpid(pid, 0)[1] == 0\n"
        "    s.start()\n"
    )
    command = [sys.executable, "-W", "error", str(script)]
    assert subprocess.run(command, capture_output=True, text=True).stderr == ""


def test_signals_are_the_scripts(sampler, adds):
    adds.wait()
    status = Path(f"/proc/self/task/{sampler._tid}/status").read_text()
    blocked = int(
        next(line for line in status.splitlines() if line.startswith("SigBlk")).split()[1], 16
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGALRM):
        assert blocked >> (number - 1) & 1


def test_when_a_thread_is_over_another_is_looked_at(adds):
    sampler = sampler_of(adds, float, bool, 0)  # no thread has that ident
    sampler.thread = _thread.get_ident()
    adds.wait()
    sampler.stop()


def test_threads_that_fork_at_once_are_both_waited_for(sampler, adds):
    adds.wait()
    sampler.pause()
    sampler.pause()
    sampler.resume()
    sampler.start()
    assert sampler._tid not in threads()
    sampler.resume()
    sampler.start()
    adds.wait()


def test_an_error_of_ours_ends_it_quietly(adds, capfd):
    before = threads()
    sampler = sampler_of(lambda kind, seconds: 1 / 0, float, bool, _thread.get_ident())
    end = time.monotonic() + 10
    while threads() - before:
        assert time.monotonic() < end
    sampler.stop()
    assert capfd.readouterr().err == ""


def test_where_no_thread_can_be_had_nothing_is_looked_at(adds, monkeypatch):
    def no_thread(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", no_thread)
    assert sampler_of(adds, float, bool, _thread.get_ident()) is None


def test_what_a_look_finds_is_let_go(sampler, adds):
    """A frame holds what its function holds: a batch must not live until the next look."""
    import gc
    import weakref

    class Thing:
        pass

    def holds():
        thing = Thing()
        adds.wait()
        return weakref.ref(thing)

    gc.disable()
    try:
        refs = [holds() for _ in range(5)]
        adds.wait()
        assert [ref() for ref in refs] == [None] * 5
    finally:
        gc.enable()


def test_looks_that_are_dear_are_rare():
    """As where the stack is deep, or an audit hook hears of each frame."""

    class Dear(Looked):
        num_dear = 1000

        def of(self, frame):
            end_s = time.thread_time() + (0.01 if self.num < self.num_dear else 0)
            while time.thread_time() < end_s:
                continue
            return super().of(frame)

    class DearAtFirst(Dear):
        num_dear = 3  # it reads the code of three places

    nums = []
    for kind in (Looked, DearAtFirst, Dear):
        looked = kind()
        sampler = Sampler(looked, lambda what, seconds: None)
        sampler.thread = _thread.get_ident()
        sampler.start()
        time.sleep(1)
        sampler.stop()
        nums.append(looked.num)
    often, as_often, rarely = nums
    assert often > 20 and as_often > 20
    assert 3 <= rarely <= 7  # of 10 ms, so many at once, then one each two seconds


class Looked:
    """Counts looks."""

    num = 0

    def of(self, frame):
        self.num += 1
        return []
