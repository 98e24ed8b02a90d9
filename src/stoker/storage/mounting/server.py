"""The storage process of a machine: serves a run's mounts, and ends with the run.

python -m stoker.storage.mounting.server TOLD_FD ANSWER_FD PIDFD     started by launch.py

Two processes: one serves, the other does nothing but wait for the end of the run, or of the first, and
then unmounts. So mounts are gone after every end, that of the server included.
"""

import contextlib
import json
import os
import select
import signal
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

from stoker.storage.mounting.attach import detach

ENDS_WITHIN_S = 2.0
MAX_TOLD = 10  # URLs that could not be read, a run


class Told(NamedTuple):
    """What the server is told. mounts: of each its path, URL, /dev/fuse and the folder beneath it;
    disk: path, bytes and whether it is kept, or None."""

    name: str  # of the socket
    mounts: list[tuple[str, str, int, int]]
    memory_nbytes: int
    disk: tuple[str, int, bool] | None
    limit_s: float
    way: dict[str, Any] | None


def main(told_fd: int, answer_fd: int, pidfd: int) -> int:
    with os.fdopen(told_fd, "rb") as told_by:
        told = Told(**json.load(told_by))
    serving = os.fork()
    if serving == 0:
        _die_with_parent()
        os.close(pidfd)
        return _serve(told, answer_fd)
    os.close(answer_fd)
    for _, _, fd, _ in told.mounts:
        os.close(fd)  # or the kernel would wait for answers of a server that is gone
    return _watch(told, serving, pidfd)


def _die_with_parent() -> None:
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _watch(told: Told, serving: int, pidfd: int) -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with the run, and then at once
    own = os.pidfd_open(serving)
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    poller.register(own, select.POLLIN)
    ended = {fd for fd, _ in poller.poll()}
    if own in ended and pidfd not in ended:
        _, status = os.waitpid(serving, 0)
        if status != _REFUSED << 8:
            from stoker import speak

            paths = ", ".join(path for path, _, _, _ in told.mounts)
            how = f"signal {status & 0x7F}" if status & 0x7F else f"exit code {status >> 8}"
            speak.say(f"the process that serves {paths} has ended ({how}); reading there fails now")
            poller.unregister(own)
            poller.poll()
    else:
        signal.pidfd_send_signal(own, signal.SIGTERM)
        if not select.select([own], [], [], ENDS_WITHIN_S)[0]:
            signal.pidfd_send_signal(own, signal.SIGKILL)
    for path, _, _, folder_fd in told.mounts:
        detach(path, folder_fd)
    return 0


def _stay_on_one_cpu() -> None:
    """One interpreter's lock goes from thread to thread, which on one CPU needs no other to wake up.
    Measured: 2,600 files of 40 KB a second in place of 2,250, 400 MB/s of large ones in place of 300."""
    with contextlib.suppress(OSError):
        cpus = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cpus[os.getpid() % len(cpus)]})


_REFUSED = 3  # exit code: it has told why before


def _serve(told: Told, answer_fd: int) -> int:
    from stoker.storage.serving.storage_process import Refused, Serving

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    _stay_on_one_cpu()
    with os.fdopen(answer_fd, "wb") as answer:
        try:
            serving = Serving(
                told.name,
                [(path, url, fd) for path, url, fd, _ in told.mounts],
                told.memory_nbytes,
                None if told.disk is None else (Path(told.disk[0]), *told.disk[1:]),
                told.limit_s,
                told.way,
            )
            serving.start(over.set)
        except Refused as error:
            answer.write(f"{error}\n".encode())
            answer.flush()
            os._exit(_REFUSED)  # threads may still wait for an origin
        answer.write(b"ok\n")
    over.wait()
    with contextlib.suppress(Exception):
        serving.close()
    os._exit(0)  # libfuse's threads wait for the kernel


def run(words: list[str]) -> Any:
    return main(*map(int, words))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
