"""An engine that is driven by a process of its own, and the hosts that it starts, which dial here."""

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoker.remote.net.auth import admit, make_token
from tests.conftest import descendants, state_of, wait_until_gone

ROOT = Path(__file__).resolve().parents[2]
SMALL_HOST = str(Path(__file__).with_name("small_host.py"))
PATIENCE_S = 60.0  # for what must come
QUIET_S = 0.6  # in which what must not come does not: a host dials within 0.2 s of being wanted
GONE_WITHIN_S = 10.0
NUM_PLACES = 3
DIES = 9  # an order to end with this code


@dataclass
class Joined:
    """A host that has dialled. pid: of its process, or of its thread."""

    sock: socket.socket
    name: str
    node: str
    pid: int
    at_s: float

    def end(self) -> None:
        """Have it end by itself, with a code that is not 0."""
        self.sock.send(bytes([DIES]))

    def wait_gone(self, within_s: float = PATIENCE_S) -> None:
        self.sock.settimeout(within_s)
        with contextlib.suppress(ConnectionResetError):
            assert self.sock.recv(1) == b""


@dataclass
class Engines:
    """How one kind of engine is had. environ: of the process that drives it."""

    kind: str
    cluster: str
    environ: dict[str, str] = field(default_factory=dict)
    num_cpus: int = NUM_PLACES  # on every CPU that it has

    @property
    def has_processes(self) -> bool:
        return self.kind != "fake"


@dataclass
class Driven:
    """An engine at work, and its hosts' trainer."""

    process: "subprocess.Popen[str]"
    listening: socket.socket
    token: bytes
    hosts: dict[str, Joined] = field(default_factory=dict)
    cpus: dict[str, int] = field(default_factory=dict)  # by name of a host, as it was told last
    said: list[str] = field(default_factory=list)
    rest: str = ""

    def order(self, words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        self.wait_said(f"obeyed {words.split()[0]}")

    def wait_said(self, start: str) -> str:
        """The next line that starts so, without that start."""
        end_s = time.monotonic() + PATIENCE_S
        while True:
            for k, line in enumerate(self.said):
                if line.startswith(start):
                    return self.said.pop(k).removeprefix(start).strip()
            assert self.read(end_s - time.monotonic()), f"never said {start!r}, but {self.said}"

    def read(self, within_s: float) -> bool:
        """Take in what the driving process says within that time, if anything."""
        assert self.process.stdout is not None
        fd = self.process.stdout.fileno()
        if not select.select([fd], [], [], max(0.0, within_s))[0]:
            return False
        data = os.read(fd, 1 << 16)
        *lines, self.rest = (self.rest + data.decode()).split("\n")
        for line in lines:
            word, _, told = line.partition(" ")
            if word == "resize":
                name, _, num_cpus = told.rpartition(" ")
                self.cpus[name] = int(num_cpus)
            else:
                self.said.append(line)
        return bool(data)

    def accept(self, within_s: float = PATIENCE_S) -> socket.socket:
        self.listening.settimeout(within_s)
        sock, _ = self.listening.accept()
        return sock

    def wait_joined(self) -> Joined:
        sock = self.accept()
        sock.settimeout(PATIENCE_S)
        hello = admit(sock, self.token, lambda _: "")
        host = Joined(sock, hello["name"], hello["node"], hello["pid"], time.monotonic())
        before = self.hosts.get(host.name)
        if before is not None:  # the name is free again
            before.wait_gone()
            before.sock.close()
        self.hosts[host.name] = host
        return host

    def wait_cpus(self, num_cpus: int) -> list[Joined]:
        """The hosts, once they have so many CPUs in all; those that have none by then end."""
        end_s = time.monotonic() + PATIENCE_S
        while sum(self.cpus.values()) != num_cpus:
            assert self.read(end_s - time.monotonic()), (self.cpus, self.said)
        for name in [name for name, num in self.cpus.items() if num == 0]:
            del self.cpus[name]
            host = self.hosts.pop(name, None)
            if host is not None:  # else it was given back before it dialled
                host.wait_gone()
                host.sock.close()
        while self.hosts.keys() != self.cpus.keys():
            self.wait_joined()
        return list(self.hosts.values())

    def nobody_dials(self) -> bool:
        return not select.select([self.listening], [], [], QUIET_S)[0]


@contextlib.contextmanager
def driven(engines: Engines, workers: str | None = None, **settings: Any) -> Iterator[Driven]:
    """At the end the driving process is killed; whatever it started must then end."""
    token = make_token()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.contract.engine_driver", engines.kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | engines.environ,
    )
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening, process:
        assert process.stdin is not None
        asked = {
            "cluster": engines.cluster,
            "workers": workers,
            "host": [SMALL_HOST],
            "folder": None,
        }
        port = listening.getsockname()[1]
        way = {"address": "127.0.0.1", "port": port, "token": token.hex(), "certificate": ""}
        for words in (asked | settings, way):
            process.stdin.write(json.dumps(words) + "\n")
        process.stdin.flush()
        made = Driven(process, listening, token)
        try:
            made.wait_said("address")
            yield made
            assert process.poll() is None, made.said
        finally:
            started = descendants(process.pid)
            process.kill()
            process.wait()
            wait_until_gone(started, GONE_WITHIN_S)
            assert [pid for pid in started if state_of(pid) not in ("", "Z")] == []
            for host in made.hosts.values():
                with contextlib.suppress(TimeoutError):
                    host.wait_gone(GONE_WITHIN_S)
                host.sock.close()
