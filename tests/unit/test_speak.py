"""Saying something never hurts the script, whatever its stderr is. Processes without torch."""

import os
import signal
import subprocess
import sys

import pytest

from stoker import speak

FIRST = "import os, signal, sys\nfrom stoker import speak\n"
THEN = "speak.say('a line')\nos.write(1, b'alive')\n"
# case -> what the script does first; what its stderr is
CASES = {
    "none": ("sys.stderr = None", "file"),
    "closed": ("sys.stderr.close()", "file"),
    "descriptor closed": ("os.close(2)", "file"),
    "raises": ("sys.stderr = type('Broken', (), {'write': lambda *_: 1 / 0})()", "file"),
    "no stream at all": ("sys.stderr = 7", "file"),
    "full disk": ("", "full disk"),
    "closed pipe": ("", "closed pipe"),
    "closed pipe that kills": ("signal.signal(signal.SIGPIPE, signal.SIG_DFL)", "closed pipe"),
    "closed pipe with a handler": (
        "signal.signal(signal.SIGPIPE, lambda *_: os._exit(3))",
        "closed pipe",
    ),
    "full pipe that does not wait": ("os.set_blocking(2, False)", "full pipe"),
    "file too large": (
        "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)",
        "file",
    ),
}


def stderr_of(what, tmp_path):
    """Descriptors to close; the first one is for stderr."""
    if what == "full disk":
        return [os.open("/dev/full", os.O_WRONLY)]
    if what == "file":
        return [os.open(tmp_path / "err", os.O_CREAT | os.O_WRONLY)]
    reader, writer = os.pipe()
    if what == "closed pipe":
        os.close(reader)
        return [writer]
    os.set_blocking(writer, False)
    while True:
        try:
            os.write(writer, bytes(4096))
        except BlockingIOError:
            break
    return [writer, reader]


def run(code, stderr):
    try:
        return subprocess.run(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=stderr[0]
        )
    finally:
        for fd in stderr:
            os.close(fd)


@pytest.mark.parametrize(("first", "stderr"), CASES.values(), ids=CASES)
def test_what_cannot_be_said_is_dropped(first, stderr, tmp_path):
    results = [
        run(f"{FIRST}{first}\n{then}", stderr_of(stderr, tmp_path))
        for then in (THEN, THEN.replace("speak.say", "str"))
    ]
    ours, plain = [(result.returncode, result.stdout) for result in results]
    assert ours == plain
    assert ours[1] == b"alive"


def test_what_can_be_said_comes_after_what_the_script_said(tmp_path):
    code = f"{FIRST}sys.stderr.write('first, ')\n{THEN}sys.stderr.write('last')"
    run(code, stderr_of("file", tmp_path))
    assert (tmp_path / "err").read_text() == "first, stoker: a line\nlast"


def test_a_signal_that_was_waiting_before_stays(tmp_path):
    first = "signal.pthread_sigmask(signal.SIG_BLOCK, {13})\nsignal.raise_signal(13)"
    last = "assert signal.sigpending() == {13}, signal.sigpending()"
    result = run(f"{FIRST}{first}\n{THEN}{last}", stderr_of("file", tmp_path))
    assert result.returncode == 0, (tmp_path / "err").read_text()


@pytest.mark.parametrize("kind", ["io.StringIO()", "io.TextIOWrapper(io.BytesIO())"])
def test_the_scripts_own_stream_gets_the_line(kind, tmp_path):
    last = "sys.stderr.seek(0)\nassert sys.stderr.read() == 'stoker: a line\\n'"
    result = run(
        f"import io\n{FIRST}sys.stderr = {kind}\n{THEN}{last}", stderr_of("file", tmp_path)
    )
    assert result.returncode == 0


class Unshown(Exception):
    def __str__(self):
        raise ValueError


def test_what_a_guarded_function_raises_is_one_line_even_if_it_cannot_be_shown(capfd, monkeypatch):
    monkeypatch.setattr(speak, "_told", [])

    @speak.guarded
    def count():
        raise Unshown

    assert count() is None
    assert count() is None
    assert capfd.readouterr().err == "stoker: the report will lack something: Unshown\n"


class Handler:
    def __call__(self, signum, frame):
        raise TimeoutError

    def method(self, signum, frame):
        raise TimeoutError


@pytest.mark.parametrize("handler", [Handler(), Handler().method], ids=["object", "method"])
def test_what_a_signal_handler_raises_is_the_scripts(handler, monkeypatch):
    """A script that gives an epoch a time with signal.alarm."""
    before = signal.signal(signal.SIGUSR1, handler)
    counts = speak.guarded(lambda: signal.raise_signal(signal.SIGUSR1))
    monkeypatch.setattr(speak, "_put", lambda *_: signal.raise_signal(signal.SIGUSR1))
    try:
        for call in (counts, lambda: speak.write("a line")):
            with pytest.raises(TimeoutError):
                call()
    finally:
        signal.signal(signal.SIGUSR1, before)
