"""What a recorder keeps out of the run log, and lets through."""

import os
import signal
import sys
import threading

import pytest

from stoker.config import Settings
from stoker.reports.log import RunLog
from stoker.reports.record import Recorder


def recorder() -> tuple[Recorder, RunLog]:
    """One that is quiet starts no keeper, and has no log."""
    made = Recorder(Settings(quiet=True), environ={})
    made._log = RunLog()
    return made, made._log


def test_a_forked_child_writes_nothing_into_its_parents_log():
    made, log = recorder()
    row = made.loader(object(), "train.py:1", (), chains=1, reasons=[])
    before = os.fstat(log.fd).st_size
    if (pid := os.fork()) == 0:
        try:
            made.note(row, "said in the child")
            made.settle(row, ["found out in the child"])
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert os.fstat(log.fd).st_size == before
    made.close()


def test_a_handler_that_iterates_a_loader_while_a_row_is_made_gets_its_own(monkeypatch):
    made, _ = recorder()
    rows = []
    ask = lambda place: rows.append(made.loader(object(), place, (), chains=1, reasons=[]))  # noqa: E731
    before = signal.signal(signal.SIGUSR1, lambda *_: ask("handler.py:1"))
    new = Recorder._new

    def interrupted(self, place, *values):
        if place == "train.py:1":
            signal.raise_signal(signal.SIGUSR1)
        return new(self, place, *values)

    monkeypatch.setattr(Recorder, "_new", interrupted)
    ask("train.py:1")
    signal.signal(signal.SIGUSR1, before)
    assert [row.place for row in rows] == ["handler.py:1", "train.py:1"]
    made.close()


def test_a_handler_that_raises_while_the_keeper_is_started_reaches_the_script(monkeypatch, capfd):
    def interrupt(signum, frame):
        raise TimeoutError

    before = signal.signal(signal.SIGUSR1, interrupt)
    monkeypatch.setattr(Recorder, "_start_keeper", lambda self: signal.raise_signal(signal.SIGUSR1))
    try:
        with pytest.raises(TimeoutError):
            Recorder(Settings(), environ={})
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert "no report if this run is killed" in capfd.readouterr().err


def test_lines_of_several_threads_are_whole():
    log = RunLog()
    threads = [
        threading.Thread(
            target=lambda name=name: [log.append("said", text=name * 50) for _ in range(500)]
        )
        for name in "abcd"
    ]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    reader = RunLog(os.dup(log.fd))
    texts = [line["text"] for line in reader.new_lines()]
    reader.close()
    assert sorted(texts) == sorted(name * 50 for name in "abcd" for _ in range(500))
    log.close()
