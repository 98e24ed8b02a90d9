"""Workers of a cluster as plain processes of this machine: to try one without having one.

Promise: as `Engine`; a process that ends is started again after a moment.
Owner: the engine's thread.
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

AGAIN_S = 0.2  # between a process's end and its replacement's start
HOST = ("-m", "stoker.host.host")


class Processes:
    """settings: `cluster` is `processes:N`; `host`, if it is there, what Python runs as a host."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._host = settings.get("host", HOST)
        self._num_workers = int(settings["cluster"].partition(":")[2])
        self._running: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}

    def address_of_trainer(self) -> str:
        return "127.0.0.1"

    def run(self, way: dict[str, Any], tell: Callable[[str], None]) -> None:
        """Keep the processes running, until this one ends."""
        poll = select.poll()
        for number in range(self._num_workers):
            self._start(poll, way, f"process {number}")
        while True:
            for fd, _ in poll.poll():
                name, process = self._running.pop(fd)
                poll.unregister(fd)
                os.close(fd)
                process.wait()
                select.poll().poll(AGAIN_S * 1000)
                self._start(poll, way, name)

    def _start(self, poll: select.poll, way: dict[str, Any], name: str) -> None:
        here = {"name": name, "node": os.uname().nodename, "is_bound": True}
        process = start_host({**way, **here}, self._host)
        fd = os.pidfd_open(process.pid)
        self._running[fd] = name, process
        poll.register(fd, select.POLLIN)


def start_host(way: dict[str, Any], host: Sequence[str] = HOST) -> "subprocess.Popen[bytes]":
    """A host: one worker's process. It ends with its stdin, which whoever starts it holds open.

    is_bound: even where it is stopped then, and so cannot see it; for this thread is the last.
    """
    process = subprocess.Popen(
        [sys.executable, *host],
        env=os.environ | ({"PYTHONHASHSEED": seed} if (seed := way.get("hash_seed")) else {}),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(way).encode() + b"\n")
    process.stdin.flush()
    return process
