"""Runs hosts as plain processes of this machine, to try `--cluster` without a cluster.

Promise: as `Engine`. Owner: the engine's thread; shared: `_num_wanted`, a word, and the eventfd
that tells of it.
"""

import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from stoker.clock import Deadline, now_s
from stoker.poll_loop import PollLoop
from stoker.remote.engines.engine import Settings, Way
from stoker.remote.engines.hosts import Backoff, Bounds, to_give_back

CODE_FOLDER = "STOKER_CODE_FOLDER"  # a host's variable: where the script's modules are
LEAVE_S = 5.0  # what a host that is given back may take to end
HOST = ("-P", "-m", "stoker.remote.host.host")  # -P: what lies in its working folder is not ours


@dataclass(slots=True)
class _Place:
    """State of one host. process: None between its end and its next start, which is at `due_s`."""

    backoff: Backoff = field(default_factory=Backoff)
    process: "subprocess.Popen[bytes] | None" = None
    started_s: float = 0.0
    due_s: float = 0.0


class Processes:
    """Engine of plain processes, at most N. settings: `cluster` is `processes:N`; see `Engine`."""

    def __init__(self, settings: Settings) -> None:
        self._host = settings.get("host", HOST)
        self._num_cpus = int(settings["cluster"].partition(":")[2])
        self._bounds = Bounds.of(settings["workers"])
        self._num_wanted = self._bounds.first
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._loop = PollLoop()
        self._loop.add(self._wake_fd, self._woken)
        self._places: dict[int, _Place] = {}
        self._leaving: dict[int, tuple[subprocess.Popen[bytes], Deadline]] = {}  # given back
        self._numbers = itertools.count()
        self._told: set[str] = set()

    def address_of_trainer(self) -> str:
        return "127.0.0.1"

    def want(self, num_hosts: int) -> None:
        self._num_wanted = self._bounds.clamp(num_hosts)
        os.eventfd_write(self._wake_fd, 1)

    def publish(self, stats: dict[str, object]) -> None:
        """Do nothing: there is no cluster that could be asked."""

    def run(self, way: Way, tell: Callable[[str], None], dismiss: Callable[[str], None]) -> None:
        while True:
            self._give_back(dismiss)
            self._start(way, tell)
            self._loop.wait(self._wait_s())

    def _num_hosts(self) -> int:
        wanted = self._num_wanted
        return self._num_cpus if wanted is None else min(wanted, self._num_cpus)

    def _give_back(self, dismiss: Callable[[str], None]) -> None:
        here = {n: "here" if place.process else None for n, place in self._places.items()}
        for number in to_give_back(here, self._num_hosts()):
            process = self._places.pop(number).process
            if process is not None and process.stdin is not None:
                dismiss(_name(number))
                process.stdin.close()
                self._leaving[number] = process, Deadline(LEAVE_S)
        for process, deadline in self._leaving.values():
            if deadline.is_over():
                process.kill()

    def _start(self, way: Way, tell: Callable[[str], None]) -> None:
        """Start hosts that are missing and due; later again if the system refuses."""
        while len(self._places) < self._num_hosts():
            self._places[next(self._numbers)] = _Place()
        for number, place in self._places.items():
            if place.process is not None or place.due_s > now_s():
                continue
            place.started_s = now_s()
            try:
                place.process = self._start_one(way, number)
            except OSError as error:
                place.due_s = now_s() + place.backoff.ended(0.0)
                if str(error) not in self._told:
                    self._told.add(str(error))
                    tell(f"a worker cannot be started, and is tried again: {error}")

    def _start_one(self, way: Way, number: int) -> "subprocess.Popen[bytes]":
        node = os.uname().nodename
        told: Way = {**way, "name": _name(number), "node": node, "is_bound": True}
        process = start_host(told, self._host)
        try:
            fd = os.pidfd_open(process.pid)
        except OSError:
            process.kill()
            process.wait()
            raise
        self._loop.add(fd, partial(self._ended, fd, number))
        return process

    def _woken(self) -> None:
        os.eventfd_read(self._wake_fd)

    def _ended(self, fd: int, number: int) -> None:
        self._loop.remove(fd)
        os.close(fd)
        if number in self._leaving:
            self._leaving.pop(number)[0].wait()
            return
        place = self._places[number]
        assert place.process is not None and place.process.stdin is not None
        place.process.stdin.close()
        was_killed = place.process.wait() < 0
        place.process = None
        now = now_s()
        place.due_s = now + place.backoff.ended(now - place.started_s, was_killed)

    def _wait_s(self) -> float | None:
        """Return time until a host is due, or a leaving one is to be killed; None: for ever."""
        now = now_s()
        waits_s = [p.due_s - now for p in self._places.values() if p.process is None]
        waits_s += [deadline.left_s() or 0.0 for _, deadline in self._leaving.values()]
        return max(0.0, min(waits_s)) if waits_s else None


def _name(number: int) -> str:
    return f"process {number}"


def start_host(
    way: Way, host: Sequence[str] = HOST, code: str | None = None
) -> "subprocess.Popen[bytes]":
    """Start a host process. It ends when its stdin does, which the caller holds open.

    code: a folder with the script's own modules. Jobs see it, the host itself does not, whatever
    names they have.
    Raises OSError. is_bound, in `way`: the host ends with this thread, which must be the last, even
    if it is stopped then, and so cannot see its stdin end.
    """
    process = subprocess.Popen(
        [sys.executable, *host],
        env=_environ(way.get("hash_seed"), code),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        bufsize=0,
        process_group=0,  # as the receiver's
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended already, as its code will tell
        process.stdin.write(json.dumps(way).encode() + b"\n")
    return process


def _environ(hash_seed: str | None, code: str | None) -> dict[str, str]:
    environ = dict(os.environ)
    if hash_seed:
        environ["PYTHONHASHSEED"] = hash_seed
    if code is not None:
        environ[CODE_FOLDER] = code
        path = environ.pop("PYTHONPATH", "").split(os.pathsep)  # where Ray has put it
        if kept := os.pathsep.join(folder for folder in path if folder not in ("", code)):
            environ["PYTHONPATH"] = kept
    return environ
