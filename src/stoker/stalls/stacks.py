"""Tells in which line of Python another process of ours stands, also while it hangs inside a library's C code.

    process: faulthandler writes its main thread's stack to a memfd when SIGNAL comes <- reader: sends it, reads the memfd

The C handler of faulthandler needs no lock of the interpreter's, so that a call that hangs with it, or a library whose threads
a fork has lost, is seen as well.
Promise: who never is asked pays for a descriptor and a signal handler. SIGNAL is sent only to a process that handles it and
has the memfd; faulthandler itself, its other signals and Python's handlers are left to the script.
"""

import contextlib
import faulthandler
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stoker.blame import is_installed
from stoker.clock import Deadline

SIGNAL = signal.SIGRTMAX - 3  # a real-time one, which no library is known to use
WITHIN_S = 1.0  # until the handler has written: it takes microseconds where a core is free
MAX_NUMBERS = 8  # of workers that stand at one place
_NAME = "stoker-stack"
_IN_KERNEL = "State:\tD"
_OURS = f"{Path(__file__).parents[1]}/"
_FETCH = "/torch/utils/data/"  # between the worker's loop and the dataset
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)\n')


class _Frame(NamedTuple):
    file: str
    line: int
    name: str

    def __str__(self) -> str:
        parts = Path(self.file).parts[-2 if is_installed(self.file) else -1 :]
        return f"{'/'.join(parts)}:{self.line} in {self.name}"


def allow() -> None:
    """Let others see where this process's main thread stands, from now on. Not if somebody else has the signal."""
    if signal.getsignal(SIGNAL) is not signal.SIG_DFL:
        return
    with contextlib.suppress(OSError, AttributeError, RuntimeError):  # no descriptor; a sandbox
        faulthandler.register(SIGNAL, os.memfd_create(_NAME), all_threads=False)


def where(pid: int | None) -> str:
    """Return in words the file, line and function in which a worker stands, and the script's own that called it. Waits
    WITHIN_S at most."""
    try:
        status = "" if pid is None else Path(f"/proc/{pid}/status").read_text()
        if _IN_KERNEL in status:  # it hears no signal
            return "in the kernel, waiting for a disk or a server"
        frames = [] if pid is None else _stack_of(pid, status)
    except OSError:  # it has ended
        frames = []
    if not frames:
        return "not known"
    inside: list[_Frame] = []
    for frame in frames:
        if not frame.file.startswith(_OURS) and _FETCH not in frame.file:
            inside.append(frame)
        elif frame.file.startswith(f"{_OURS}worker/"):
            break
    own = next((frame for frame in inside if not is_installed(frame.file)), None)
    if not inside:
        return "waiting for work"
    return str(inside[0]) if own in (None, inside[0]) else f"{inside[0]}, called at {own}"


def told(quiet_s: float, places: dict[str, list[int]]) -> str:
    """Put in one line where workers stand. places: the numbers of the workers at each."""
    parts = []
    for place, numbers in places.items():
        shown = ", ".join(map(str, numbers[:MAX_NUMBERS]))
        more = f" and {len(numbers) - MAX_NUMBERS} more" if len(numbers) > MAX_NUMBERS else ""
        parts.append(f"worker{'s' * (len(numbers) > 1)} {shown}{more}: {place}")
    return "; ".join([f"no batch for {quiet_s:.0f} s", *parts])


def _stack_of(pid: int, status: str) -> list[_Frame]:
    """Return the frames, the innermost first. status: of /proc. Raises OSError."""
    handled = re.search(r"^SigCgt:\t(\w+)$", status, re.MULTILINE)
    if handled is None or not int(handled[1], 16) >> (SIGNAL - 1) & 1:
        return []
    for fd in _opened(pid):
        before = os.fstat(fd).st_size
        os.kill(pid, SIGNAL)
        by, text = Deadline(WITHIN_S), ""
        while f'"{_OURS}worker/' not in text and not by.is_over():
            os.sched_yield()
            text = os.pread(fd, 1 << 16, before).decode(errors="replace")
        return [_Frame(file, int(line), name) for file, line, name in _FRAME.findall(text)]
    return []


def _opened(pid: int) -> Iterator[int]:
    """Open the process's memfd, if it has it."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if _NAME in str(link.readlink()):
                fd = os.open(link, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    yield fd
                finally:
                    os.close(fd)
                return
