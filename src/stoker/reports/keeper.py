"""Keeps the log of a run while it lasts, and writes the report of one that was killed. Run as a script, without
site.

usage: keeper.py LIFELINE_FD LOG_FD PID_FD PID      PID_FD: -1 where pidfds are refused

Each second it takes what is new from the trainer's memory (log.py) to the state folder (runs/file.py): a slow disk
is none of the trainer's business. Once the trainer's end of the lifeline closes, which is when the trainer has ended, it
writes what the run log holds, unless the trainer did. It is started with all signals blocked,
those too that end a whole process group: it ends by itself.
"""

import os
import select
import sys

TAKE_EVERY_MS = 1000  # the ring of looks holds 24 s of the fastest loader (log.py)


def _leave_folder() -> str:
    """Return the folder that the script began in, and leave it: its disk can be unmounted now."""
    try:
        folder = os.getcwd()
    except OSError:  # removed
        folder = "/"
    os.chdir("/")
    return folder


def _let_go(kept: set[int]) -> None:
    """Close what the script was given: a pipe's reader waits for its end. Not stderr, to which the
    summary of a killed run goes."""
    for fd in {int(name) for name in os.listdir("/proc/self/fd")} - kept:
        try:
            os.close(fd)
        except OSError:  # of the listing itself
            continue
    for fd in (0, 1):
        os.dup2(os.open(os.devnull, os.O_RDWR), fd)


def _has_ended(lifeline_fd: int) -> bool:
    """Wait until the lifeline closes, a second at most."""
    poll = select.poll()
    poll.register(lifeline_fd, select.POLLIN)
    return bool(poll.poll(TAKE_EVERY_MS)) and not os.read(lifeline_fd, 1)


if (
    __name__ == "__main__"
):  # before all else is imported, which takes 20 ms: many runs are over by then
    _folder = _leave_folder()
    _let_go({2, *map(int, sys.argv[1:4])})
    _is_over = _has_ended(int(sys.argv[1]))
    sys.path.insert(
        0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    )

import contextlib
import fcntl
import signal
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.clock import now_s
from stoker.live.host import RunMemory
from stoker.reports.log import RunLog
from stoker.reports.metrics import as_json
from stoker.runs.buckets import Look, Why
from stoker.runs.file import Writer

if TYPE_CHECKING:  # most runs do without
    from stoker.live.shown import Shown

END_WAIT_MS = 2000  # from the last closed file to the end of a process
LOOK_MS = 20  # how often it is looked for where there is no pidfd
STAY_S = 2.0  # between two looks whether somebody still looks at the page
LIVES_ON_MS = 500  # from the lifeline's end until it is looked whether its owner lives on
_PIDFD_INFO_NBYTES = 64  # struct pidfd_info, first version
_PIDFD_INFO_EXIT = 1 << 3
_PIDFD_GET_INFO = (3 << 30) | (_PIDFD_INFO_NBYTES << 16) | (0xFF << 8) | 11  # _IOWR(0xFF, 11, ...)


def main(folder: Path, is_over: bool, lifeline_fd: int, log_fd: int, pid_fd: int, pid: int) -> None:
    """Log the run until the process ends, and write its report, unless it did."""
    log, kept = RunLog(log_fd), Kept()
    kept.take(log)
    while not is_over and not _has_ended(lifeline_fd):
        kept.take(log)
    if not log.is_done:
        _wait_ended(pid_fd, pid, lambda: kept.take(log))
    is_killed = not log.is_done
    how = ended(_exit_status(pid_fd, pid)) if is_killed else ""
    settings, run, loaders = log.read()
    if is_killed and "began_s" in settings:
        run.wall_s = now_s() - settings["began_s"]
    report = as_json(run, loaders, how or settings.get("ended", "exit"))
    kept.end(log, report)
    if is_killed:
        from stoker.reports.record import publish

        asked = settings.get("report_file")
        publish(report, folder / asked if asked else None, settings.get("quiet", False))
    log.close()
    if pid_fd >= 0:
        os.close(pid_fd)
    kept.stay()


class Kept:
    """Keeps the log in the state folder, none where it cannot be written; and shows it, where that is asked for."""

    def __init__(self) -> None:
        self._shown: Shown | None = None
        self._writer: Writer | None = None
        self._is_off = False
        self._about: dict[str, Any] = {}
        self._loaders: list[dict[str, Any]] = []  # that are not in it yet
        self._why_slow: list[Why] = []
        self._memory: RunMemory | None = None

    def take(self, log: RunLog) -> None:
        """Append what is new; there is no log before the first batch."""
        lines, looks = log.new_lines(), log.new_looks()
        self._keep(lines, looks)
        if self._memory is not None:
            self._memory.read()
        if self._shown is not None:
            self._shown.take(log, lines, looks)

    def _keep(self, lines: list[dict[str, Any]], looks: list[Look]) -> None:
        if self._is_off:
            return
        for line in lines:
            if line["kind"] == "settings":
                told = {name: line[name] for name in ("pid", "rank", "began_s")}
                self._about = line["about"] | told | {"runs_folder": line["runs_folder"]}
                self._memory = RunMemory(line["pid"])
                self._show(line["live"], dict(self._about), self._memory)
            elif line["kind"] == "began":
                self._about["began_s"] = line["began_s"]
            elif line["kind"] == "loader":
                self._loaders.append(line)
            elif line["kind"] == "slow":
                self._why_slow.append(Why(line["number"], line["batch"], line["why"]))
        if looks or self._writer is not None:
            try:
                self._put(looks)
            except OSError:  # a full disk, no such folder: the run is none the wiser
                self._is_off = True

    def _put(self, looks: list[Look]) -> None:
        if self._writer is None:
            folder = self._about.pop("runs_folder")
            if folder is None:
                self._is_off = True
                return
            self._writer = Writer(Path(folder), self._about)
        loaders, self._loaders = self._loaders, []
        self._writer.take(loaders, looks, now_s())

    def _show(self, asked: dict[str, Any], about: dict[str, Any], memory: RunMemory) -> None:
        if asked["page"] is None and asked["tensorboard"] is None:
            return
        sys.path += asked["path"]  # where the script's Python finds libraries
        from stoker.live.shown import Shown

        self._shown = Shown(asked, about, about["runs_folder"], memory)

    def end(self, log: RunLog, report: dict[str, Any]) -> None:
        lines, looks = log.new_lines(), log.new_looks()
        self._keep(lines, looks)
        if self._shown is not None:
            self._shown.end(log, lines, looks, report["ended"])
        if self._writer is None:
            return
        if not self._is_off:
            with contextlib.suppress(OSError):
                memory = (0, 0) if self._memory is None else self._memory.others_nbytes
                self._writer.end(report, self._why_slow, memory)
        self._writer.close()  # and its lock, by which a run that lasts is known

    def stay(self) -> None:
        """Serve the page for as long as somebody has it open."""
        if self._shown is None or not self._shown.is_looked_at:
            return
        # A reader of the script's stderr waits for its end.
        os.dup2(os.open(os.devnull, os.O_RDWR), 2)
        while self._shown.is_looked_at:
            select.select((), (), (), STAY_S)


def _wait_ended(pid_fd: int, pid: int, take: Callable[[], None]) -> None:
    """Wait until the trainer ends or execs: it may close the lifeline and live on, with the log. take: called meanwhile."""
    poll = select.poll()
    if pid_fd >= 0:
        poll.register(pid_fd, select.POLLIN)
    while not poll.poll(LIVES_ON_MS):
        try:
            maps = Path(f"/proc/{pid}/maps").read_bytes()
        except OSError:
            return
        if b"stoker-run-log" not in maps:
            return
        take()


def _exit_status(pid_fd: int, pid: int) -> int | None:
    """Return the wait status of a process that is ending; None if the kernel does not tell.

    It stands in /proc until the parent has reaped the process (proc(5), last field of stat), and
    from then on in the pidfd (linux/pidfd.h, PIDFD_GET_INFO; Linux 6.15).
    """
    poll = select.poll()
    if pid_fd >= 0:
        poll.register(pid_fd, select.POLLIN)
    for _ in range(1 if pid_fd >= 0 else END_WAIT_MS // LOOK_MS):
        poll.poll(END_WAIT_MS if pid_fd >= 0 else LOOK_MS)
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes().rsplit(b" ", 1)
        except OSError:
            break  # collected
        if b") Z " in stat[0]:
            return int(stat[1])
    if pid_fd < 0:
        return None
    info = bytearray(struct.pack("<Q", _PIDFD_INFO_EXIT).ljust(_PIDFD_INFO_NBYTES, b"\0"))
    try:
        fcntl.ioctl(pid_fd, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    (told,), (status,) = struct.unpack_from("<Q", info), struct.unpack_from("<i", info, 60)
    return int(status) if told & _PIDFD_INFO_EXIT else None


def ended(status: int | None) -> str:
    """Return the report's `ended` for a wait status."""
    if status is None:
        return "a signal or os._exit"
    if status & 0x7F:
        return _name(status & 0x7F)
    return "exit"


def _name(signum: int) -> str:
    try:
        return signal.Signals(signum).name
    except ValueError:  # a real-time signal between the first and the last, which have names
        return f"SIGRTMIN+{signum - signal.SIGRTMIN}"


if __name__ == "__main__":
    main(Path(_folder), _is_over, *map(int, sys.argv[1:5]))
