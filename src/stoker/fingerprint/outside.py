"""Detects traces that work leaves outside of Python objects: output, files, processes, sockets.

Promise: what is written to stdout, stderr or any file or pipe that was open when this process was
forked is swallowed, from Python and from C alike, and `traces` reports it; it also reports files
that are opened for writing, removed or renamed, processes that are started and sockets that are
opened.
Ban: only for a process of ours. An audit hook cannot be removed (docs.python.org,
sys.addaudithook).
"""

import contextlib
import fcntl
import os
import stat
import sys
from pathlib import Path

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Source: docs.python.org, audit events table, 3.13
TELLING = {
    "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate",
    "os.chmod", "os.chown", "os.utime", "os.chdir", "os.putenv", "os.unsetenv", "os.system",
    "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "os.kill",
    "subprocess.Popen", "socket.bind", "socket.connect", "socket.sendto", "socket.sendmsg",
    "shutil.copyfile", "shutil.move", "shutil.rmtree", "signal.pthread_kill", "fcntl.flock",
    "fcntl.lockf", "sqlite3.connect", "tempfile.mkstemp", "tempfile.mkdtemp", "urllib.Request",
}  # fmt: skip


class Outside:
    """Records traces between `begin` and `traces`. Owner: the process's main thread."""

    def __init__(self) -> None:
        self._seen: list[str] = []
        self._is_watching = False
        self._output_fd = os.memfd_create("stoker-output", os.MFD_CLOEXEC)
        self._flush()
        for fd in _writable_fds() - {self._output_fd}:
            os.dup2(self._output_fd, fd, inheritable=os.get_inheritable(fd))
        sys.addaudithook(self._hear)

    def begin(self) -> None:
        self._is_watching = True

    def traces(self) -> str:
        """Describe a trace that was left since `begin`; empty if there is none."""
        self._flush()
        self._is_watching = False
        has_printed = os.fstat(self._output_fd).st_size > 0
        if has_printed:
            os.ftruncate(self._output_fd, 0)
            os.lseek(self._output_fd, 0, os.SEEK_SET)
        seen = ["it prints, or writes to an open file"] if has_printed else list(self._seen)
        self._seen.clear()
        return seen[0] if seen else ""

    def _flush(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # closed, None, or the script's own
                stream.flush()

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self._is_watching:
            return
        if event == "open":
            flags = arguments[2]
            if isinstance(flags, int) and flags & WRITES:
                self._seen.append(f"it writes to {arguments[0]!r}")
        elif event in TELLING:
            self._seen.append(f"it calls {event}")


def _writable_fds() -> set[int]:
    """Return open files, pipes and terminals that can be written to, no sockets: ours is one."""
    found = {1, 2}
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the folder itself, closed by now
            fd = int(entry.name)
            may_write = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
            mode = os.fstat(fd).st_mode
            if may_write and (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or os.isatty(fd)):
                found.add(fd)
    return found
