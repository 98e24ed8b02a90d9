"""Writes the report of a process that was killed. Run as a script, without site.

usage: keeper.py LIFELINE_FD LOG_FD PID_FD PID

Waits until the trainer's end of the lifeline closes, which is when the trainer has ended, and
then writes what the run log holds, unless the trainer did. Ignores signals that end a whole
process group: it ends by itself.
"""

import fcntl
import os
import select
import signal
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from stoker.report.log import RunLog  # the path comes first: there is no site
from stoker.report.metrics import as_json

END_WAIT_MS = 2000  # from the last closed file to the end of a process
_PIDFD_INFO_NBYTES = 64  # struct pidfd_info, first version
_PIDFD_INFO_EXIT = 1 << 3
_PIDFD_GET_INFO = (3 << 30) | (_PIDFD_INFO_NBYTES << 16) | (0xFF << 8) | 11  # _IOWR(0xFF, 11, ...)


def main(lifeline_fd: int, log_fd: int, pid_fd: int, pid: int) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    for fd in (0, 1):
        os.dup2(os.open(os.devnull, os.O_RDWR), fd)
    while os.read(lifeline_fd, 1):
        continue
    how = ended(_exit_status(pid_fd, pid))
    log = RunLog(log_fd)
    if log.is_done:
        return
    from stoker.report.record import publish

    settings, run, loaders = log.read()
    file = settings.get("report_file")
    publish(as_json(run, loaders, how), Path(file) if file else None, settings.get("quiet", False))


def _exit_status(pid_fd: int, pid: int) -> int | None:
    """The wait status of a process that is ending; None where the kernel does not tell.

    It stands in /proc until the parent has collected it (proc(5), last field of stat), and
    from then on in the pidfd (linux/pidfd.h, PIDFD_GET_INFO; Linux 6.15).
    """
    poll = select.poll()
    poll.register(pid_fd, select.POLLIN)
    poll.poll(END_WAIT_MS)
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes().rsplit(b" ", 1)
        if b") Z " in stat[0]:
            return int(stat[1])
    except OSError:
        pass  # collected
    info = bytearray(struct.pack("<Q", _PIDFD_INFO_EXIT).ljust(_PIDFD_INFO_NBYTES, b"\0"))
    try:
        fcntl.ioctl(pid_fd, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    (told,), (status,) = struct.unpack_from("<Q", info), struct.unpack_from("<i", info, 60)
    return int(status) if told & _PIDFD_INFO_EXIT else None


def ended(status: int | None) -> str:
    """The report's `ended` for a wait status."""
    if status is None:
        return "a signal or os._exit"
    if status & 0x7F:
        return signal.Signals(status & 0x7F).name
    return "exit"


if __name__ == "__main__":
    main(*map(int, sys.argv[1:5]))
