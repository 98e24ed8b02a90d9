"""Hosts that are forked from a process that has imported theirs: a fork in place of 1.5 s of CPU each.

They are real processes, and all that comes after the imports is as in one that was started. No
imports here but the standard library, on the server's side: a host's modules are its own.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from typing import Any

RUN = "import sys; from stoker.remote.host import start; sys.exit(start.run())"


class Forked:
    """As much of a Popen as a host's owner asks for."""

    def __init__(self, pid: int, pidfd: int, stdin: int) -> None:
        self.pid, self._pidfd = pid, pidfd
        self.stdin = os.fdopen(stdin, "wb", buffering=0)

    def wait(self, timeout: float | None = None) -> None:
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        if not poll.poll(None if timeout is None else timeout * 1000):
            raise subprocess.TimeoutExpired("a host", timeout or 0.0)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def close(self) -> None:
        os.close(self._pidfd)


class WarmHosts:
    """The test's side. The environment is that of now, for all hosts."""

    def __init__(self) -> None:
        self._sock, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__], stdin=theirs, stdout=subprocess.DEVNULL
            )

    def start(self, way: dict[str, Any], code: str = RUN) -> Forked:
        """As `start_host`. code: what Python runs."""
        read_fd, write_fd = os.pipe()
        socket.send_fds(self._sock, [json.dumps(code).encode()], [read_fd])
        os.close(read_fd)
        told, (pidfd,), _, _ = socket.recv_fds(self._sock, 100, 1)
        host = Forked(int(told), pidfd, write_fd)
        host.stdin.write(json.dumps(way).encode() + b"\n")
        return host

    def close(self) -> None:
        self._sock.close()  # at which it ends
        self._process.wait()


def serve() -> str:
    """In the server: fork until nobody asks any more. In a host: the code that it runs."""
    import stoker.remote.host.host  # noqa: F401  # what makes it warm

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how a host ended
    sock = socket.socket(fileno=os.dup(0))
    while True:
        code, fds, _, _ = socket.recv_fds(sock, 1 << 16, 1)
        if not fds:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setpgid(0, 0)
            os.dup2(fds[0], 0)
            os.close(fds[0])
            sock.close()
            return str(json.loads(code))
        pidfd = os.pidfd_open(pid)
        socket.send_fds(sock, [str(pid).encode()], [pidfd])
        for fd in (pidfd, *fds):
            os.close(fd)


if __name__ == "__main__":
    exec(serve())
