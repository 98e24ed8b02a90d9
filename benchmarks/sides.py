"""Run one side of a pair: the same script under Python, or under `stoker run`.

Promise: a side starts with nothing of the side before it still running, and is killed with all
it started when it takes too long. All its processes are found by a token in their environment,
which forked, re-parented and setsid() children carry too.
"""

import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOKEN_NAME = "JOB_BENCH_SIDE"  # as variables of jobs are: another one in each run
SIDE_LIMIT_S = 300.0  # the slowest side takes half a minute
LEAVE_LIMIT_S = 5.0  # for what a side left running
# A scan costs 2 to 5 ms of a core for four processes of 0.5 GB; batches live for longer than this.
PSS_EVERY_S = 0.05


class CannotMeasureError(Exception):
    """A side ended without its line; says which, and with what words."""


def command(
    side: str, script: str, flags: tuple[str, ...], run_flags: tuple[str, ...] = ()
) -> list[str]:
    """run_flags: of `stoker run`."""
    plain = [sys.executable, str(HERE / script), *flags]
    if side == "stoker":
        return [sys.executable, "-m", "stoker", "run", "--quiet", *run_flags, "--", *plain]
    return plain


def environment(token: str) -> dict[str, str]:
    """A side's environment. Python may keep what it compiles there: an installed stoker is compiled."""
    env = {**os.environ, TOKEN_NAME: token}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    return env


def pids_with(token: str) -> list[int]:
    """Processes whose environment holds the token, whoever their parent is now."""
    needle, pids = f"{TOKEN_NAME}={token}".encode(), []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and needle in (entry / "environ").read_bytes():
                pids.append(int(entry.name))
        except OSError:  # ended meanwhile, or not ours to read
            continue
    return pids


def kilobytes_of(file: Path, key: str) -> int:
    """The number behind `key:` in a file of /proc; 0 if the process ended."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{key}:")), 0)


class MemoryPeaks:
    """Peaks over all processes that hold a token, by two counts, in bytes.

    peak_pss: proportional set sizes. peak_all: the same, but shared memory as the system counts
    it, so with what is in flight and mapped by nobody, as torch's batches between two processes.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        self._shmem_before = self._shmem()
        self.peak_pss_nbytes = self.peak_all_nbytes = 0

    def look(self) -> None:
        rollups = [Path(f"/proc/{pid}/smaps_rollup") for pid in pids_with(self._token)]
        pss = sum(kilobytes_of(file, "Pss") for file in rollups)
        mapped = sum(kilobytes_of(file, "Pss_Shmem") for file in rollups)
        shmem = max(mapped, self._shmem() - self._shmem_before)
        self.peak_pss_nbytes = max(self.peak_pss_nbytes, 1024 * pss)
        self.peak_all_nbytes = max(self.peak_all_nbytes, 1024 * (pss - mapped + shmem))

    @staticmethod
    def _shmem() -> int:
        return kilobytes_of(Path("/proc/meminfo"), "Shmem")


def end_all(token: str, limit_s: float) -> int:
    """Wait until no process has the token, then kill what has; returns how many were killed."""
    end_s = time.monotonic() + limit_s
    num_killed = 0
    for pid in pids_with(token):
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ended = select.poll()
        ended.register(pidfd, select.POLLIN)
        if not ended.poll(max(0.0, end_s - time.monotonic()) * 1000):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            num_killed += 1
            ended.poll()
        os.close(pidfd)
    return num_killed


def wait_watching(
    process: subprocess.Popen, every_s: float, look: Callable[[], None], limit_s: float
) -> None:
    """Wait for the end and `look` now and then; raises TimeoutExpired past limit_s."""
    end_s = time.monotonic() + limit_s
    while True:
        try:
            process.wait(every_s)
            return
        except subprocess.TimeoutExpired:
            if time.monotonic() > end_s:
                raise
            look()


def last_line(text: str, what: str, errors: str) -> dict:
    lines = [line for line in text.splitlines() if line.startswith("{")]
    if not lines:
        tail = "\n".join(errors.splitlines()[-12:])
        raise CannotMeasureError(f"{what} printed no figures; its last words:\n{tail}")
    return json.loads(lines[-1])


def run_side(
    side: str,
    script: str,
    flags: tuple[str, ...],
    watches_memory: bool = False,
    side_limit_s: float = SIDE_LIMIT_S,
    run_flags: tuple[str, ...] = (),
) -> dict:
    """The line that the script printed and `command_s`, the seconds until the command had ended;
    with the two peaks of MemoryPeaks if asked.

    Raises CannotMeasureError when it fails, prints no line or takes longer than side_limit_s.
    """
    token = secrets.token_hex(8)
    peaks = MemoryPeaks(token)

    # Files, not pipes: a process that was left behind would hold a pipe open.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        argv, env = command(side, script, flags, run_flags), environment(token)
        began_s = time.perf_counter()
        process = subprocess.Popen(argv, stdout=out, stderr=err, env=env, start_new_session=True)
        limit_s, late = LEAVE_LIMIT_S, ""
        try:
            every_s = PSS_EVERY_S if watches_memory else side_limit_s
            wait_watching(process, every_s, peaks.look, side_limit_s)
        except subprocess.TimeoutExpired:
            limit_s, late = 0.0, f" after {side_limit_s:.0f} s"
        except BaseException:  # Ctrl-C: take the side with us
            end_all(token, 0.0)
            raise
        command_s = time.perf_counter() - began_s
        num_left = end_all(token, limit_s)
        process.wait()
        out.seek(0)
        err.seek(0)
        what, errors = f"{side} side of {script} {' '.join(flags)}{late}", err.read()
        line = last_line(out.read() if process.returncode == 0 else "", what, errors)
        line["command_s"] = command_s
    if watches_memory:
        line |= {"peak_pss_nbytes": peaks.peak_pss_nbytes, "peak_all_nbytes": peaks.peak_all_nbytes}
    if num_left:
        print(f"  warning: {side} left {num_left} processes behind", file=sys.stderr)
        line["num_left_behind"] = num_left
    return line
