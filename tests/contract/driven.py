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
    said: list[str] = field(default_factory=list)
    rest: str = ""

    def order(self, words: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        self.wait_said(f"obeyed {words.split()[0]}")

    def wait_said(self, start: str) -> str:
        """The next line that starts so, without that start."""
        assert self.process.stdout is not None
        end_s = time.monotonic() + PATIENCE_S
        while True:
            for k, line in enumerate(self.said):
                if line.startswith(start):
                    return self.said.pop(k).removeprefix(start).strip()
            left_s = max(0.0, end_s - time.monotonic())
            fd = self.process.stdout.fileno()
            data = os.read(fd, 1 << 16) if select.select([fd], [], [], left_s)[0] else b""
            assert data, f"never said {start!r}, but {self.said}"
            *lines, self.rest = (self.rest + data.decode()).split("\n")
            self.said += lines

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

    def wait_num(self, num_hosts: int) -> list[Joined]:
        while len(self.hosts) < num_hosts:
            self.wait_joined()
        return list(self.hosts.values())

    def wait_given_back(self) -> None:
        """A host is dismissed by its name, and ends."""
        with self.hosts.pop(self.wait_said("dismiss")).sock as sock:
            sock.settimeout(PATIENCE_S)
            with contextlib.suppress(ConnectionResetError):
                assert sock.recv(1) == b""

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
