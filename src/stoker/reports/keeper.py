"""Writes the report of a process that was killed. Run as a script, without site.

usage: keeper.py LIFELINE_FD LOG_FD PID_FD PID      PID_FD: -1 where pidfds are refused

Waits until the trainer's end of the lifeline closes, which is when the trainer has ended, and
then writes what the run log holds, unless the trainer did. It is started with all signals blocked,
those too that end a whole process group: it ends by itself.
"""

import os
import sys


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


def _wait_for_the_end(lifeline_fd: int, log_fd: int, pid_fd: int) -> str:
    """Wait until the lifeline closes; returns the folder that the script began in."""
    folder = _leave_folder()
    _let_go({2, lifeline_fd, log_fd, pid_fd})
    while os.read(lifeline_fd, 1):
        continue
    return folder


if __name__ == "__main__":  # before all else is imported, which takes 6 MB
    _folder = _wait_for_the_end(*map(int, sys.argv[1:4]))
    sys.path.insert(
        0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    )

import fcntl
import select
import signal
import struct
from pathlib import Path

from stoker.clock import now_s
from stoker.reports.log import RunLog
from stoker.reports.metrics import as_json

END_WAIT_MS = 2000  # from the last closed file to the end of a process
LOOK_MS = 20  # how often it is looked for where there is no pidfd
LIVES_ON_MS = 500  # from the lifeline's end until it is looked whether its owner lives on
_PIDFD_INFO_NBYTES = 64  # struct pidfd_info, first version
_PIDFD_INFO_EXIT = 1 << 3
_PIDFD_GET_INFO = (3 << 30) | (_PIDFD_INFO_NBYTES << 16) | (0xFF << 8) | 11  # _IOWR(0xFF, 11, ...)


def main(folder: Path, log_fd: int, pid_fd: int, pid: int) -> None:
    """Write the report of a process whose lifeline has closed, unless it did."""
    log = RunLog(log_fd)
    if log.is_done:
        return
    _wait_ended(pid_fd, pid)
    if RunLog(log_fd).is_done:
        return
    how = ended(_exit_status(pid_fd, pid))
    from stoker.reports.record import publish

    settings, run, loaders = log.read()
    if "began_s" in settings:
        run.wall_s = now_s() - settings["began_s"]
    asked = settings.get("report_file")
    file = folder / asked if asked else None
    publish(as_json(run, loaders, how), file, settings.get("quiet", False))


def _wait_ended(pid_fd: int, pid: int) -> None:
    """Wait until the trainer ends or execs: it may close the lifeline and live on, with the log."""
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
    main(Path(_folder), *map(int, sys.argv[2:5]))
