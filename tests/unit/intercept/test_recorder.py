"""One recorder a process, whoever asks for it."""

import threading

import pytest

from stoker.intercept import run


class Reentered:
    """A handler of the script's iterates a loader while the first of these is made."""

    made: list["Reentered"] = []  # noqa: RUF012

    def __init__(self, *values: object, **named: object) -> None:
        self.is_closed = False
        Reentered.made.append(self)
        if len(Reentered.made) == 1:
            run.recorder()

    def close(self) -> None:
        self.is_closed = True

    def finish(self) -> None:
        return


def test_a_handler_that_iterates_a_loader_while_it_is_made_does_not_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stoker.reports.record.Recorder", Reentered)
    monkeypatch.setattr(run, "_recorder", None)
    monkeypatch.setattr(run.atexit, "register", lambda call: None)
    got: list[object] = []
    thread = threading.Thread(target=lambda: got.append(run.recorder()), daemon=True)
    thread.start()
    thread.join(10)
    outer, inner = Reentered.made
    assert got == [inner]
    assert (outer.is_closed, inner.is_closed) == (True, False)
    assert run.recorder() is inner
