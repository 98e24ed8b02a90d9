"""Real processes: start a command plain or under stoker, wait for what it tells, see what it leaves.

A script tells its progress by lines on the pipe whose number is in TELL_FD; the tests wait for
lines, never for time. Every process that descends from a command carries its mark in the
environment, which is how leftovers are found after their parents are gone.
"""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conftest import wait_until_gone

SCRIPTS = Path(__file__).parent / "scripts"
MARK = "STOKERS_TEST_MARK"  # not STOKER_*: those are ours to set
PATIENCE_S = 120.0  # for what must come; its absence fails a test, its length does not
GONE_WITHIN_S = 2.0  # the promise: docs/guarantees.md, G5

ENVIRON = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("STOKER_", "PYTEST_"))
    and name not in (MARK, "PYTHONDONTWRITEBYTECODE")  # an installed stoker is compiled
}


@dataclass
class Running:
    """A command under way, in a session and with a home and temporary folder of its own."""

    process: subprocess.Popen[bytes]
    mark: str
    folder: Path
    tell_fd: int
    heard: list[str] = field(default_factory=list)
    _rest: str = ""

    def wait_for(self, start: str) -> str:
        """The next told line that starts so, without that start."""
        end_s = time.monotonic() + PATIENCE_S
        while True:
            for k, line in enumerate(self.heard):
                if line.startswith(start):
                    return self.heard.pop(k).removeprefix(start).strip()
            if not self._hear(end_s - time.monotonic()):
                self.signal(signal.SIGABRT)
                self.process.wait(PATIENCE_S)
                raise AssertionError(f"never told {start!r}; stderr: {self.read('stderr')}")

    def _hear(self, timeout_s: float) -> bool:
        if timeout_s <= 0 or not select.select([self.tell_fd], [], [], timeout_s)[0]:
            return False
        told = os.read(self.tell_fd, 1 << 16)
        *lines, self._rest = (self._rest + told.decode()).split("\n")
        self.heard += lines
        return bool(told)

    def signal(self, number: int, *, group: bool = False) -> None:
        (os.killpg if group else os.kill)(self.process.pid, number)

    def say(self, line: str) -> None:
        """A line to the command's standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def read(self, name: str) -> str:
        return (self.folder / name).read_text(errors="replace")

    def finish(self, but: Collection[int] = (), patience_s: float = PATIENCE_S) -> "Finished":
        """but: pids of processes that may stay, and are not waited for."""
        try:
            returncode = self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGABRT)
            raise AssertionError(f"does not end; stderr: {self.read('stderr')}") from None
        leftovers = self.leftovers(GONE_WITHIN_S, but)
        report = self.folder / "report.json"
        return Finished(
            returncode, self.read("stdout"), self.read("stderr"), leftovers, self.folder,
            json.loads(report.read_text()) if report.exists() and report.stat().st_size else None,
        )  # fmt: skip

    def leftovers(self, within_s: float, but: Collection[int] = ()) -> dict[int, str]:
        """Processes of the command that are still there so long after now."""
        wait_until_gone(frozenset(marked(self.mark)) - frozenset(but), within_s)
        return {pid: what for pid, what in marked(self.mark).items() if pid not in but}


@dataclass(frozen=True)
class Finished:
    returncode: int
    stdout: str
    stderr: str
    leftovers: dict[int, str]  # pid -> command line
    folder: Path
    report: dict[str, Any] | None

    def left_files(self) -> list[str]:
        """What it left in its temporary and home folders."""
        return [
            str(file.relative_to(self.folder))
            for folder in ("tmp", "home")
            for file in (self.folder / folder).rglob("*")
        ]


def marked(mark: str) -> dict[int, str]:
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and f"{MARK}={mark}".encode() in environ_of(entry):
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                found[int(entry.name)] = command.decode(errors="replace")
    return found


def environ_of(entry: Path) -> list[bytes]:
    try:
        return (entry / "environ").read_bytes().split(b"\0")
    except OSError:  # it has ended
        return []


def left_in_shm() -> set[str]:
    """Of /dev/shm: ours, and torch's whose process has ended. Others come and go beside a test."""
    found = set()
    for path in Path("/dev/shm").iterdir():
        torchs = re.match(r"torch_(\d+)_", path.name)
        if "stoker" in path.name or (torchs and not Path("/proc", torchs[1]).exists()):
            found.add(path.name)
    return found


def under_stoker(*flags: str, quiet: bool = True) -> list[str]:
    return [
        sys.executable, "-m", "stoker", "run", *(["--quiet"] if quiet else []), *flags, "--",
    ]  # fmt: skip


@contextlib.contextmanager
def started(
    command: list[str],
    folder: Path,
    *,
    environ: dict[str, str] | None = None,
    cwd: Path = SCRIPTS,
    stdin: bytes | None = b"",
    preexec: Callable[[], object] | None = None,
    pass_fds: Sequence[int] = (),
) -> Iterator[Running]:
    """Start a command; at the end kill whatever carries its mark. stdin=None leaves a pipe open."""
    mark = uuid.uuid4().hex
    for name in ("tmp", "home"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    read_fd, write_fd = os.pipe()
    own = {
        MARK: mark,
        "TELL_FD": str(write_fd),
        "TMPDIR": str(folder / "tmp"),
        "HOME": str(folder / "home"),
        # Machine code is compiled once, by whoever is first, not in each test's own home.
        "NUMBA_CACHE_DIR": os.environ["NUMBA_CACHE_DIR"],
        "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"],
        "XDG_STATE_HOME": str(folder / "state"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONFAULTHANDLER": "1",  # SIGABRT shows where it hangs
    }
    (folder / "stdin").write_bytes(stdin or b"")
    with (
        (folder / "stdout").open("wb") as out,
        (folder / "stderr").open("wb") as err,
        (folder / "stdin").open("rb") as given,
    ):
        process = subprocess.Popen(
            command,
            env=ENVIRON | own | (environ or {}),
            cwd=cwd,
            stdin=subprocess.PIPE if stdin is None else given,
            stdout=out,
            stderr=err,
            pass_fds=[write_fd, *pass_fds],
            start_new_session=True,
            preexec_fn=preexec,
        )
    os.close(write_fd)
    try:
        yield Running(process, mark, folder, read_fd)
    finally:
        for pid in marked(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
        os.close(read_fd)


def finished(
    command: list[str], folder: Path, *, patience_s: float = PATIENCE_S, **kwargs: Any
) -> Finished:
    with started(command, folder, **kwargs) as running:
        return running.finish(patience_s=patience_s)


def plain_and_ours(
    command: list[str], folder: Path, *flags: str, **kwargs: Any
) -> tuple[Finished, Finished]:
    """The same command without and with stoker."""
    plain = finished(command, folder / "plain", **kwargs)
    report = f"--report-json={folder / 'ours' / 'report.json'}"
    ours = finished([*under_stoker(report, *flags), *command], folder / "ours", **kwargs)
    assert ours.leftovers == {}
    assert ours.left_files() == []  # torch's own workers do leave folders behind at an error
    return plain, ours
