"""A pre-warmed fork server: runs scripts in children of a process that has imported torch.

A run costs a fork in place of an interpreter's start and torch's import, which are 1.2 s of CPU.
Plain and under stoker go the same way, so what differs from a fresh interpreter differs for both.
The child goes back to the top of its `-c` program with the script's code, in a true `__main__`,
so that what ends it is the interpreter itself: traceback, exit code, threads, atexit, finalization.

The server is a subreaper: whatever a script leaves behind becomes its child, and is found.
Not for scripts whose subject is the interpreter's start. No imports from here but the standard
library: the server must not have imported stoker. One run at a time.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE_S = 90.0  # for a script that should end at once; beyond, it hangs
GONE_WITHIN_S = 10.0  # after its end; that it is 2 s is shown elsewhere, on a quiet machine
_PROGRAM = (
    f"import sys; sys.path[0] = {str(Path(__file__).parent)!r}; import warm; exec(warm.serve())"
)
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Ran:
    """What a run came to. ends: exit code, or minus the signal; None where it hung."""

    ends: int | None
    stdout: str
    stderr: str
    leftovers: list[str] = field(default_factory=list)  # command lines


class Server:
    """The test's side: start one, run scripts, close."""

    def __init__(self, environ: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM], env=environ,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def run(
        self, script: Path, cwd: Path, environ: dict[str, str], out: Path,
        gone_within_s: float = GONE_WITHIN_S,
    ) -> Ran:  # fmt: skip
        """Run a script in `cwd` with exactly that environment; its output goes into `out`."""
        asked: dict[str, Any] = {
            "script": str(script),
            "cwd": str(cwd),
            "environ": environ,
            "out": str(out),
        }
        asked |= {"gone_within_s": gone_within_s}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        stdout, stderr = ((out / n).read_text(errors="replace") for n in ("stdout", "stderr"))
        return Ran(told["ends"], stdout, stderr, told["leftovers"])

    def close(self) -> None:
        self._process.communicate(b"\n")  # and its stdin may be open in somebody's fork


def serve() -> types.CodeType:
    """In the server: run what is asked for until stdin ends. In a run's child: its code."""
    import ctypes

    import torch.utils.data  # noqa: F401  # what makes it warm

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    while True:
        line = b""
        while not line.endswith(b"\n"):  # unbuffered: a child must not have read ahead
            if not (read := os.read(0, 1 << 16)):
                os._exit(0)
            line += read
        if not line.strip():
            os._exit(0)
        asked = json.loads(line)
        pid = os.fork()
        if not pid:
            return _become(asked)
        ends = _wait_for(pid, PATIENCE_S)
        if ends is None:  # with PYTHONFAULTHANDLER it writes where it hangs
            os.kill(pid, signal.SIGABRT)
            _wait_for(pid, GONE_WITHIN_S)
        told = {"ends": ends, "leftovers": _end_leftovers(asked["gone_within_s"])}
        os.write(1, json.dumps(told).encode() + b"\n")


def _become(asked: dict[str, Any]) -> types.CodeType:
    """The script's world, as a fresh interpreter would find it."""
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    for fd, name in enumerate(("/dev/null", "stdout", "stderr")):
        opened = os.open(Path(asked["out"], name), flags if fd else os.O_RDONLY)
        os.dup2(opened, fd)
        os.close(opened)
    os.environ.clear()
    os.environ.update(asked["environ"])
    tempfile.tempdir = None
    os.chdir(asked["cwd"])
    script = asked["script"]
    sys.argv[:] = [script]
    sys.path[0] = str(Path(script).parent)
    main = sys.modules["__main__"]
    for name in ("sys", "warm"):
        delattr(main, name)
    main.__file__ = script
    del sys.modules["warm"]
    if sys.version_info >= (3, 14):  # a hard script has no guard: see tests/quick/sitecustomize.py
        __import__("sitecustomize").fork_by_default()
    if "STOKER_RUN" in os.environ:  # as the .pth line does
        __import__("stoker.intercept.arm", fromlist=["arm"]).arm()
    return compile(Path(script).read_bytes(), script, "exec", dont_inherit=True)


def _wait_for(pid: int, timeout_s: float) -> int | None:
    """How a child ended, reaping whoever else has; None where it has not in time."""
    end_s = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == pid:
                    return os.waitstatus_to_exitcode(ended[1])
        if time.monotonic() >= end_s:
            return None
        signal.sigtimedwait([signal.SIGCHLD], max(0.0, end_s - time.monotonic()))


def _end_leftovers(gone_within_s: float) -> list[str]:
    """Command lines of what is still there when it should be gone; it is killed."""
    end_s = time.monotonic() + gone_within_s
    while True:  # each signal may stand for several ends, and an end may bring new orphans
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return []
        if time.monotonic() >= end_s:
            break
        signal.sigtimedwait([signal.SIGCHLD], end_s - time.monotonic())
    found = []
    with contextlib.suppress(ChildProcessError):
        while True:
            for pid in _children():
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                found.append(command.decode(errors="replace")[:200])
                os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)  # its children are ours now
    return found


def _children() -> list[int]:
    ours = Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()
    return [int(pid) for pid in ours if _is_alive(int(pid))]


def _is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].strip()[:1] != "Z"
