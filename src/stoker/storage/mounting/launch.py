"""Mounts, and starts the storage process, before a run's command begins.

Promise: when `launch` returns, the mounts answer; if it raises, nothing is left of it.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any, NoReturn

from stoker.config import Disk, Mount
from stoker.errors import ConfigError, StorageUnavailable
from stoker.storage.asking import control
from stoker.storage.mounting.attach import Attached, attach, cover, detach, enter_namespace

LIMIT_S = 60.0
NEEDED = ("fsspec", "mfusepy", "xxhash")


def launch(
    mounts: Sequence[Mount],
    memory_nbytes: int,
    disk: Disk | None,
    keeps: bool,
    limit_s: float = LIMIT_S,
    credentials: Mapping[str, str] | None = None,
    way: Mapping[str, Any] | None = None,
) -> str:
    """Return what config.STORAGE is to be set to; the storage process ends with this one.

    memory_nbytes, disk, keeps: what it may have for blocks of files; credentials: variables that are
    set for it alone; way: to the trainer, for folders of its machine.
    Raises ConfigError if nothing can be mounted there, StorageUnavailable if an origin does not answer.
    """
    missing = [module for module in NEEDED if find_spec(module) is None]
    if missing:
        raise ConfigError(f"mount: {', '.join(missing)} is not installed here")
    try:
        pidfd = os.pidfd_open(os.getpid())
    except OSError as error:
        raise ConfigError(f"mount: this kernel has no pidfds ({error.strerror})") from None
    enter_namespace()
    attached: list[Attached] = []
    name = control.new_name()
    try:
        for mount in mounts:
            attached.append(attach(mount.path))
        told = {
            "name": name,
            "mounts": [
                (mount.path, mount.url, each.fd, each.folder_fd)
                for mount, each in zip(mounts, attached, strict=True)
            ],
            "memory_nbytes": memory_nbytes,
            "disk": None if disk is None else (disk.path, disk.nbytes, keeps),
            "limit_s": limit_s,
            "way": way,
        }
        fds = [fd for each in attached for fd in each[1:]]
        answer = _start(told, fds, pidfd, {**os.environ, **(credentials or {})})
        if answer != "ok":
            raise StorageUnavailable(answer or "the storage process ended as it started")
        for mount in mounts:
            cover(mount.path)
    except BaseException:
        for each in attached:
            detach(each.path, each.folder_fd)
        raise
    finally:
        os.close(pidfd)
        for each in attached:
            os.close(each.fd)
    for each in attached:
        os.close(each.folder_fd)  # the lock is the storage process's now
    return variable(name, mounts)


def variable(socket: str, mounts: Sequence[Mount]) -> str:
    """Return what config.STORAGE holds: a socket's name, and the folders of mounts, one a line."""
    return "\n".join([socket, *(mount.path for mount in mounts)])


def _start(told: dict[str, Any], fds: list[int], pidfd: int, environ: dict[str, str]) -> str:
    """Start the process; return its answer."""
    told_read, told_write = os.pipe()
    answer_read, answer_write = os.pipe()
    between = os.fork()
    if between == 0:  # twice, so that the script has no child of ours
        _fork_and_exec(told_read, answer_write, pidfd, fds, environ)
    os.waitpid(between, 0)
    os.close(told_read)
    os.close(answer_write)
    with os.fdopen(told_write, "wb") as tell:
        tell.write(json.dumps(told).encode())
    with os.fdopen(answer_read, encoding="utf-8", errors="replace") as answer:
        return answer.read().strip()


def _fork_and_exec(
    told_read: int, answer_write: int, pidfd: int, fds: list[int], environ: dict[str, str]
) -> NoReturn:
    try:
        if os.fork() == 0:
            os.setsid()  # Ctrl-C is for the script; this ends with it
            for fd in (told_read, answer_write, pidfd, *fds):
                os.set_inheritable(fd, True)
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(null, 1)
            words = [str(fd) for fd in (told_read, answer_write, pidfd)]
            os.chdir("/")
            python = sys.executable
            module = "stoker.storage.mounting.server"
            os.execve(python, [python, "-P", "-m", module, *words], environ)
    finally:
        os._exit(0)
