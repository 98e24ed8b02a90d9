"""Has multiprocessing's fork server load torch and what templates need while the script still imports.

The server that multiprocessing starts at the first worker imports the script anew, so torch too: a second
or more before the first batch. Here its command is given to a process that has torch already.

Promise: workers see what they would have seen. What a process inherits is compared when the server is wanted;
where it differs the early one is thrown away, and where that is unsure of itself it executes the command afresh.
A server that runs already is left as it is. No descriptor is open in the script's process meanwhile.
Owner: the main thread, from the script's import of torch on. Ban: standard library only.
Source: multiprocessing/forkserver.py `ForkServer.ensure_running`, Python 3.11 to 3.14
"""

import atexit
import contextlib
import fcntl
import functools
import importlib
import json
import multiprocessing
import os
import select
import signal
import socket
import struct
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import spawn, util
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from stoker.blame import is_installed

LOADED = "stoker.worker.main"  # with torch: what a worker is made of
TEMPLATE = "stoker.local.started"
_SERVER = "from multiprocessing.forkserver import main"  # in its command, and in no other of multiprocessing's
_COMMAND = "from stoker.local.fork_server import load_and_serve; load_and_serve({}, {}, {!r})"
_LENGTH = 8  # bytes of a message's length
_LOW = 64  # descriptors below that are left to the server's command: libffi keeps one open, of its own library
# For its command: the memory of a server that nobody wants is the script's again then.
_WAIT_S = 120.0
_WAITS = ("wait", "wait3", "wait4", "waitid", "waitpid")
_UCRED = struct.Struct("3i")  # process, user, group: unix(7), SO_PEERCRED
# Variables that torch itself sets while torchvision is imported, and that it reads when it compiles something.
_LATE = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
# Lines of /proc/thread-self/status that a process has from the one that starts it.
_INHERITED = ("Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "Cap", "NoNewPrivs", "Seccomp:",
              "Cpus_a", "Mems_a")  # fmt: skip


class _Early(NamedTuple):
    """A server that waits for its command."""

    pid: int
    owner: int  # the process that started it
    name: bytes  # of the socket at which it waits, an abstract one
    start: list[str]  # the interpreter and its options
    inherited: object


_early: _Early | None = None
_waits: dict[str, Any] = {}  # our wrappers, while there is an early server
_lock = threading.Lock()  # of who replaces the function that spawns


def begin_early() -> None:
    """Start one, if this is a script whose workers would come from it. Called as the import of torch begins."""
    global _early
    script = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    if not script.endswith(".py") or is_installed(os.path.abspath(script)):  # noqa: PTH100  # a launcher
        return
    if _early or _method(None) != "forkserver" or multiprocessing.parent_process() is not None:
        return
    if len(os.sched_getaffinity(0)) < 2:  # it would be in the script's way
        return
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")  # the kernel finds a name that is free
        listener.listen(1)
        name = listener.getsockname()
        start = [os.fsdecode(spawn.get_executable()), *util._args_from_interpreter_flags()]  # type: ignore[attr-defined]
        inherited = _inherited()
        command = _COMMAND.format(listener.fileno(), os.getpid(), sys.path)
        pid = util.spawnv_passfds(
            os.fsencode(start[0]), [*start, "-c", command, *sys.argv], [listener.fileno()]
        )
    _early = _Early(pid, os.getpid(), name, start, inherited)
    atexit.register(drop)
    # A script may wait for any child: this would be one that never ends.
    os.register_at_fork(before=drop)
    for name in _WAITS:
        _waits[name] = _dropping(getattr(os, name))
        setattr(os, name, _waits[name])


def _dropping(wait: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of `_WAITS`, until the server is dropped or taken."""

    @functools.wraps(wait)
    def waits(*arguments: Any, **named: Any) -> Any:
        if wait.__name__ not in ("waitpid", "wait4") or arguments[:1] < (1,):  # not for one child
            drop()
        return wait(*arguments, **named)

    return waits


def _restore_waits() -> None:
    for name, ours in _waits.items():
        if getattr(os, name) is ours:
            setattr(os, name, ours.__wrapped__)
    _waits.clear()


def drop() -> None:
    """Throw the early server away, if nobody took it."""
    global _early
    early, _early = _early, None
    if early is None:
        return
    _restore_waits()
    if early.owner == os.getpid():
        with contextlib.suppress(OSError):  # it is gone, and the script has waited for it
            os.kill(early.pid, signal.SIGKILL)
            os.waitpid(early.pid, 0)


def begin(context: Any) -> None:
    """Start the server, if a context's processes come from it. context: None is the default.

    Raises what starting it raises, which torch would meet a moment later."""
    if _method(context) != "forkserver":
        drop()
        return
    from multiprocessing import forkserver  # of no use to a script that forks

    modules = getattr(forkserver._forkserver, "_preload_modules", None)
    if isinstance(modules, list) and TEMPLATE not in modules:
        forkserver.set_forkserver_preload([*modules, LOADED, TEMPLATE])
    with _lock, _in_place_of_a_new_one():
        forkserver.ensure_running()


def _method(context: Any) -> str:
    if context is not None:
        return str(context.get_start_method())
    return multiprocessing.get_start_method(True) or multiprocessing.get_all_start_methods()[0]


@contextlib.contextmanager
def _in_place_of_a_new_one() -> Iterator[None]:
    """While this is open a fork server that is started is the early one, if it can stand for a new one."""
    spawned = util.spawnv_passfds

    def spawnv_passfds(path: Any, args: Sequence[Any], passfds: Sequence[int]) -> int:
        return _hand_over(path, args, passfds) or spawned(path, args, passfds)

    util.spawnv_passfds = spawnv_passfds
    try:
        yield
    finally:
        util.spawnv_passfds = spawned
        drop()


def _hand_over(path: Any, args: Sequence[Any], passfds: Sequence[int]) -> int:
    """Give the early server a fork server's command; return its process id, 0: it cannot stand for a new one."""
    global _early
    early = _early
    texts = [os.fsdecode(arg) for arg in args]
    num = 0 if early is None else len(early.start)
    if early is None or len(texts) < num + 2 or _SERVER not in texts[num + 1]:
        return 0  # it is not the fork server that is started
    is_same = [os.fsdecode(path), *texts[1 : num + 1]] == [*early.start, "-c"]
    if not is_same or early.owner != os.getpid() or early.inherited != _inherited():
        return 0
    late = {name: os.environ[name] for name in _LATE if name in os.environ}
    message = json.dumps([[*passfds], texts, late]).encode()
    try:
        if os.waitpid(early.pid, os.WNOHANG) != (0, 0):
            return 0
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(early.name)
            socket.send_fds(control, [len(message).to_bytes(_LENGTH, "big")], [*passfds])
            control.sendall(message)
    except OSError:
        return 0
    _early = None
    _restore_waits()
    return early.pid


def _inherited() -> object:
    """Return what a process has from the one, and the thread, that starts it."""
    status = Path("/proc/thread-self/status").read_text().splitlines()
    return (
        {name: value for name, value in os.environ.items() if name not in _LATE},
        [line for line in status if line.startswith(_INHERITED)],
        [Path("/proc/self", name).read_text() for name in ("limits", "cgroup", "oom_score_adj")],
        [
            _file(path)
            for path in (".", "/", "/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2")
        ],
        (os.getpgrp(), os.getsid(0), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)),
    )


def _file(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116  # of an open descriptor
    except OSError:
        return None
    return status.st_dev, status.st_ino


def load_and_serve(fd: int, owner: int, path: list[str]) -> NoReturn:
    """Load, wait for a fork server's command, and run it; without one, end. Of the process that is started early.

    fd: the socket where it comes; owner: the process that has started it; path: the script's `sys.path`.
    """
    try:
        low = [os.dup(fd)]
        while low[-1] < _LOW:
            low.append(os.dup(fd))
        is_sure = _load(path)
        for number in low:
            os.close(number)
        with _accepted(fd, owner) as control:
            head, fds, _, _ = socket.recv_fds(control, _LENGTH, 16)
            with control.makefile("rb") as stream:
                wanted, args, late = json.loads(stream.read(int.from_bytes(head, "big")))
        os.environ.update(late)
    except BaseException:  # as it was only loading, nobody is told
        os._exit(1)
    is_free = not any(Path("/proc/self/fd", str(fd)).exists() for fd in {*wanted} - {*fds})
    high = [_above(fd, max(wanted)) for fd in fds]
    for fd in fds:
        os.close(fd)
    for number, wish in zip(high, wanted, strict=True):
        os.dup2(number, wish)
        os.close(number)
    if not (is_sure and is_free):
        os.execv(args[0], args)
    command = args.index("-c")
    sys.argv[:] = args[command:][:1] + args[command + 2 :]
    main = sys.modules["__main__"].__dict__
    main.pop("load_and_serve", None)
    exec(args[command + 1], main)
    os._exit(0)


def _accepted(fd: int, owner: int) -> socket.socket:
    """Return the connection of the process that has started this one; end with it."""
    told = os.pidfd_open(owner)
    with socket.socket(fileno=fd) as listener:
        while True:
            ready, _, _ = select.select([listener.fileno(), told], [], [], _WAIT_S)
            if listener.fileno() not in ready or os.getppid() != owner:
                os._exit(0)
            control, _ = listener.accept()
            sent = control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
            if _UCRED.unpack(sent)[0] == owner:
                os.close(told)
                return control
            control.close()


def _load(path: list[str]) -> bool:
    """Import what workers need; returns whether it told nobody anything, and failed nowhere."""
    told: list[object] = []
    shown, warnings.showwarning = warnings.showwarning, lambda *told_: told.append(told_)
    sys.path[:] = path
    sys.argv[:] = sys.argv[1:]  # the script's, as a module might look
    try:
        for name in ("torch", LOADED, TEMPLATE):
            importlib.import_module(name)
    except Exception:
        return False
    finally:
        warnings.showwarning = shown
    return not told


def _above(fd: int, number: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, number + 1)
