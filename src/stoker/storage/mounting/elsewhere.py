"""Mounts on another machine, for the workers that a host runs there."""

import os
from functools import partial
from typing import Any, NamedTuple

from stoker import config
from stoker.config import Disk, Mount
from stoker.errors import ConfigError, StorageUnavailable
from stoker.storage.asking.control import ask
from stoker.storage.asking.roots import Root, is_here
from stoker.storage.mounting.attach import num_ours
from stoker.storage.mounting.launch import launch, variable
from stoker.storage.origins.host import SCHEME


class MountsAway(NamedTuple):
    """What a host is told of mounts, as JSON. mounts: paths and URLs; hosted: folders of the trainer's
    machine, as `Root`; way: to the trainer, set by whoever listens there; socket: of the trainer's
    storage process, if there is one; disk: path and bytes; credentials: environment variables, secret."""

    mounts: list[list[str]]
    hosted: list[list[Any]]
    way: dict[str, Any]
    socket: str
    cache_memory: int | None
    disk: list[str | int] | None
    keeps: bool
    credentials: dict[str, str]


def mount_here(told: MountsAway, memory_nbytes: int) -> str:
    """Mount as the run does, unless this process sees the run's own mounts; and the trainer's own
    folders, where this machine lacks them. What is mounted is noted in the environment. The storage
    process ends with this one.

    Returns why the trainer's folders cannot be shown; empty if they are, or are here. Raises ConfigError,
    StorageUnavailable.
    """
    mounts = [Mount(path, url) for path, url in told.mounts]
    if mounts and all(num_ours(mount.path) for mount in mounts) and _answers(told.socket):
        os.environ[config.STORAGE] = variable(told.socket, mounts)
        mounts = []
    roots = [Root(*root) for root in told.hosted]
    lacking = [Mount(root.path, SCHEME + root.path) for root in roots if not is_here(root)]
    if not mounts and not lacking:
        return ""
    disk = None if told.disk is None else Disk(str(told.disk[0]), int(told.disk[1]))
    nbytes = memory_nbytes if told.cache_memory is None else told.cache_memory // 2
    start = partial(
        launch,
        memory_nbytes=nbytes,
        disk=disk,
        keeps=told.keeps,
        credentials=told.credentials,
        way=told.way,
    )
    try:
        os.environ[config.STORAGE] = start([*mounts, *lacking])
    except (ConfigError, StorageUnavailable) as error:
        if not lacking:
            raise
        if mounts:
            os.environ[config.STORAGE] = start(mounts)
        return str(error)
    return ""


def _answers(name: str) -> bool:
    """Whether the trainer's storage process is on this machine: a mount may be another run's."""
    try:
        ask(name, {"stats": True})
    except OSError:
        return False
    return True
