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
from stoker.remote.engines.engine import Resize, Settings, Way
from stoker.remote.engines.hosts import Backoff, Bounds, to_give_back

CODE_FOLDER = "STOKER_CODE_FOLDER"  # a host's variable: where the script's modules are
LEAVE_S = 5.0  # what a host that is given back may take to end
HOST = ("-P", "-m", "stoker.remote.host.start")  # -P: what lies in its working folder is not ours


@dataclass(slots=True)
class _Host:
    """State of one host. process: None between its end and its next start, which is at `due_s`."""

    backoff: Backoff = field(default_factory=Backoff)
    process: "subprocess.Popen[bytes] | None" = None
    started_s: float = 0.0
    due_s: float = 0.0
    num_cpus: int = 0


class Processes:
    """Engine of plain processes. settings: `cluster` is `processes:N`, N hosts with a CPU each, or
    `processes:NxM`, N with M; see `Engine`."""

    def __init__(self, settings: Settings) -> None:
        self._host = settings.get("host", HOST)
        num_hosts, _, num_each = settings["cluster"].partition(":")[2].partition("x")
        self._num_each = int(num_each or 1)
        self._num_cpus = int(num_hosts) * self._num_each
        self._bounds = Bounds.of(settings["workers"])
        self._num_wanted = self._bounds.first
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._loop = PollLoop()
        self._loop.add(self._wake_fd, self._woken)
        self._hosts: dict[int, _Host] = {}
        self._leaving: dict[int, tuple[subprocess.Popen[bytes], Deadline]] = {}  # given back
        self._numbers = itertools.count()
        self._told: set[str] = set()

    def address_of_trainer(self) -> str:
        return "127.0.0.1"

    def want(self, num_cpus: int) -> None:
        self._num_wanted = self._bounds.clamp(num_cpus)
        os.eventfd_write(self._wake_fd, 1)

    def publish(self, stats: dict[str, object]) -> None:
        """Do nothing: there is no cluster that could be asked."""

    def run(self, way: Way, tell: Callable[[str], None], resize: Resize) -> None:
        while True:
            self._resize(resize)
            self._start(way, tell)
            self._loop.wait(self._wait_s())

    def _resize(self, resize: Resize) -> None:
        """Divide the CPUs that are wanted among hosts, and give back hosts that have none."""
        num_wanted = self._num_wanted
        num_cpus = self._num_cpus if num_wanted is None else min(num_wanted, self._num_cpus)
        num_hosts = -(-num_cpus // self._num_each)
        here = {n: "here" if host.process else None for n, host in self._hosts.items()}
        for number in to_give_back(here, num_hosts):
            process = self._hosts.pop(number).process
            if process is not None and process.stdin is not None:
                resize(_name(number), 0)
                process.stdin.close()
                self._leaving[number] = process, Deadline(LEAVE_S)
        for process, deadline in self._leaving.values():
            if deadline.is_over():
                process.kill()
        while len(self._hosts) < num_hosts:
            self._hosts[next(self._numbers)] = _Host()
        for number, host in self._hosts.items():
            num_here = min(num_cpus, self._num_each)
            num_cpus -= num_here
            if host.num_cpus != num_here:
                host.num_cpus = num_here
                resize(_name(number), num_here)

    def _start(self, way: Way, tell: Callable[[str], None]) -> None:
        """Start hosts that are missing and due; later again if the system refuses."""
        for number, host in self._hosts.items():
            if host.process is not None or host.due_s > now_s():
                continue
            host.started_s = now_s()
            try:
                host.process = self._start_one(way, number)
            except OSError as error:
                host.due_s = now_s() + host.backoff.ended(0.0)
                if str(error) not in self._told:
                    self._told.add(str(error))
                    tell(f"a worker cannot be started, and is tried again: {error}")

    def _start_one(self, way: Way, number: int) -> "subprocess.Popen[bytes]":
        node = os.uname().nodename
        told: Way = {
            **way,
            "name": _name(number),
            "node": node,
            "is_bound": True,
            "num_cpus": self._num_each,
        }
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
        host = self._hosts[number]
        assert host.process is not None and host.process.stdin is not None
        host.process.stdin.close()
        was_killed = host.process.wait() < 0
        host.process = None
        now = now_s()
        host.due_s = now + host.backoff.ended(now - host.started_s, was_killed)

    def _wait_s(self) -> float | None:
        """Return time until a host is due, or a leaving one is to be killed; None: for ever."""
        now = now_s()
        waits_s = [p.due_s - now for p in self._hosts.values() if p.process is None]
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
