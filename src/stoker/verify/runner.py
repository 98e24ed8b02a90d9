"""Runs the command once: starts and watches it, ends it in bounded time, and reads its records.

Promise: when `run` returns or raises, every process that carries the plan is gone. A process
that said that it has seen enough has end_s to end; the whole run has its limit and end_s.
The command has a session of its own and no stdin; its output goes to files.
"""

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO

from stoker.clock import Deadline, now_s
from stoker.poll_loop import PollLoop, wait_ready
from stoker.verify.record import STOPS, Plan, ProcessTrail, parse

END_S = 10.0  # for what a script does at its end: a last checkpoint, a report
ASK_S = 3.0  # between SIGINT, SIGTERM and SIGKILL
MAX_KILLS = 2  # rounds: a process may have been forked while the others were killed
MAX_TAIL_LINES = 60  # torchrun says 40 of its own after a rank's traceback
_PR_SET_PDEATHSIG = 1


class CannotStart(Exception):
    """Raised if the command is not there, or cannot be executed. error: which, and why."""

    def __init__(self, program: str, error: OSError) -> None:
        self.program = program
        self.error = error


class Run:
    """A run of the command. folder: an empty one, for its record and output; plan: one variable,
    which all its processes carry; end_s: what a process that has seen enough may take to end."""

    def __init__(
        self, folder: Path, plan: Mapping[str, str], limit_s: float, end_s: float = END_S
    ) -> None:
        self._folder = folder
        self._limit_s, self._end_s = limit_s, end_s
        self._plan = plan

    def run(self, command: list[str], environ: Mapping[str, str], cwd: Path) -> int | None:
        """Run the command to its end, or until it must be ended: its exit code, or None.

        Raises CannotStart.
        """
        os.mkfifo(self._folder / STOPS)
        with (
            (self._folder / "stdout").open("wb") as out,
            (self._folder / "stderr").open("wb") as err,
        ):
            process = _started(command, {**environ, **self._plan}, cwd, out, err)
        has_ended = False
        try:
            has_ended = self._wait(process)
        finally:
            self._end(process, has_ended)
        return process.returncode if has_ended else None

    def stderr_end(self, name: str) -> str:
        """Return the last lines of the command's stderr, with a headline; name: of the run."""
        lines = (self._folder / "stderr").read_text(errors="replace").splitlines()
        if not lines:
            return "it said nothing on stderr\n"
        tail = "".join(f"{line}\n" for line in lines[-MAX_TAIL_LINES:])
        return f"the last lines of its stderr ({name}):\n{tail}"

    def _wait(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait for the end, and return whether the command ended by itself."""
        with _Watch(process.pid, str(self._folder / STOPS), self._end_s) as watch:
            return watch.wait_end(Deadline(self._limit_s + self._end_s))

    def _end(self, process: subprocess.Popen[bytes], has_ended: bool) -> None:
        """Send SIGINT, as Ctrl-C does, so that it tidies up; then SIGTERM; SIGKILL what is left."""
        for number in (signal.SIGINT, signal.SIGTERM):
            if has_ended:
                break
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(ASK_S)
                has_ended = True
        for _ in range(MAX_KILLS):
            for pid in self._left():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                _wait_gone(pid)
        process.wait()

    def _left(self) -> list[int]:
        """Return pids that carry this run's plan: ranks and workers may have their own sessions."""
        ((name, text),) = self._plan.items()
        mark = f"{name}={text}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdecimal() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found


def plan_for(folder: Path, num_batches: int, limit_s: float) -> Plan:
    """Return the plan of a run of `stoker verify` that begins now."""
    return Plan(str(folder), num_batches, now_s() + limit_s)


def processes(folder: Path) -> list[ProcessTrail]:
    """Read what a run's processes have recorded for `stoker verify`."""
    texts = (file.read_text() for file in folder.glob("*.jsonl"))
    found = [process for process in map(parse, texts) if process is not None]
    return sorted(found, key=lambda process: (process.rank.zfill(9), process.began_s))


class _Watch:
    """Waits for the end of the command, and of each process that said that it has seen enough."""

    def __init__(self, pid: int, pipe: str, end_s: float) -> None:
        self._end_s = end_s
        self._command_fd = os.pidfd_open(pid)
        # Open for writing too, or the end of each writer would be an event.
        self._pipe_fd = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self._ending: dict[int, Deadline] = {}  # pidfd -> by when
        self._has_ended = False
        self._loop = PollLoop()
        self._loop.add(self._command_fd, self._command_ended)
        self._loop.add(self._pipe_fd, self._read_pipe)

    def __enter__(self) -> "_Watch":
        return self

    def __exit__(self, *_: object) -> None:
        for fd in (self._command_fd, self._pipe_fd, *self._ending):
            os.close(fd)

    def wait_end(self, deadline: Deadline) -> bool:
        """Wait until the command has ended (True), or something took longer than it may (False)."""
        while True:
            self._loop.wait(min(one.left_s() or 0.0 for one in (deadline, *self._ending.values())))
            if self._has_ended:
                return True
            if any(one.is_over() for one in (deadline, *self._ending.values())):
                return False

    def _command_ended(self) -> None:
        self._has_ended = True

    def _process_ended(self, fd: int) -> None:
        self._loop.remove(fd)
        del self._ending[fd]
        os.close(fd)

    def _read_pipe(self) -> None:
        for line in os.read(self._pipe_fd, 1 << 16).split():
            with suppress(ProcessLookupError):  # has ended already
                fd = os.pidfd_open(int(line))
                self._ending[fd] = Deadline(self._end_s)
                self._loop.add(fd, partial(self._process_ended, fd))


def _started(
    command: list[str], environ: Mapping[str, str], cwd: Path, out: IO[bytes], err: IO[bytes]
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            env=environ,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            close_fds=False,  # what the shell handed on is the script's
            preexec_fn=_end_with_us,
        )
    except OSError as error:
        raise CannotStart(command[0], error) from None


def _end_with_us() -> None:
    """Have the kernel send this child SIGTERM if `stoker` is killed. Source: prctl(2)."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait_gone(pid: int) -> None:
    """Wait until a killed process has let go of everything; a child of ours stays a zombie."""
    with suppress(ProcessLookupError):
        fd = os.pidfd_open(pid)
        try:
            wait_ready(fd, by=Deadline(ASK_S))
        finally:
            os.close(fd)
