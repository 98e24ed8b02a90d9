"""The promises of `Engine` in cluster/engine.py, in the order of their statement, on every engine.

Each is driven by a process of its own (engine_driver.py), as the receiver drives it, and starts hosts
that dial this process (small_host.py), which is their trainer.
"""

import contextlib
import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stoker.cluster.hosts import AGAIN_S
from stoker.plane.auth import admit, make_token
from tests.conftest import descendants, parent_of, state_of, wait_until_gone
from tests.process.nodes import NEEDS_RAY, Nodes, ray_of

ROOT = Path(__file__).resolve().parents[2]
SMALL_HOST = str(Path(__file__).with_name("small_host.py"))
PATIENCE_S = 60.0  # for what must come
QUIET_S = 1.5  # in which what must not come does not
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


KINDS = ["fake", "processes", pytest.param("ray", marks=[NEEDS_RAY, pytest.mark.slow])]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    with ray_of(1, 2) as made:
        yield made


@pytest.fixture(params=KINDS)
def engines(request: pytest.FixtureRequest) -> Engines:
    if request.param != "ray":
        return Engines(request.param, f"{request.param}:{NUM_PLACES}")
    nodes: Nodes = request.getfixturevalue("cluster")
    return Engines("ray", nodes.address, nodes.token)


@pytest.fixture(autouse=True)
def nothing_is_left_behind(engines: Engines) -> Iterator[None]:
    """In place of the one of tests/conftest.py: a Ray that is shared by tests starts workers of its
    own. `driven` looks for what an engine has left."""
    yield


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


def test_a_host_on_every_cpu_dials_where_it_was_told(engines):
    with driven(engines) as one:
        found = one.wait_num(NUM_PLACES)
        assert len({host.name for host in found}) == NUM_PLACES
        assert len({host.pid for host in found}) == NUM_PLACES
        assert all(host.node for host in found)
        assert one.nobody_dials()


def test_hosts_end_with_the_process_that_drives_the_engine(engines):
    with driven(engines) as one:
        found = one.wait_num(NUM_PLACES)
        one.process.kill()
        for host in found:
            host.wait_gone(GONE_WITHIN_S)
        if engines.has_processes:
            wait_until_gone(frozenset(host.pid for host in found), GONE_WITHIN_S)
            assert [host for host in found if state_of(host.pid) not in ("", "Z")] == []
        one.process.wait()
        one.process.poll = lambda: None  # type: ignore[method-assign]  # it was to end


def test_a_host_that_dies_is_started_again(engines):
    with driven(engines) as one:
        found = one.wait_num(NUM_PLACES)
        if engines.has_processes:
            os.kill(found[0].pid, signal.SIGKILL)
        else:
            found[0].end()
        found[0].wait_gone()
        again = one.wait_joined()
        assert again.pid not in [host.pid for host in found]
        assert len({host.name for host in one.hosts.values()}) == NUM_PLACES
        found[1].end()
        one.wait_joined()
        assert one.nobody_dials()


def test_hosts_that_die_at_once_are_started_ever_less_often(engines):
    """As do those whose trainer turns them away."""
    with driven(engines, "1") as one:
        at_s = []
        for _ in range(4):
            host = one.wait_joined()
            at_s.append(host.at_s)
            host.sock.close()
            del one.hosts[host.name]
    waits_s = [later - earlier for earlier, later in itertools.pairwise(at_s)]
    assert [wait_s >= AGAIN_S * 2**k for k, wait_s in enumerate(waits_s)] == [True] * 3, waits_s


def test_no_more_hosts_than_the_setting_allows(engines):
    with driven(engines, "2") as one:
        one.order("want 3")
        one.wait_num(2)
        one.order("want 1")
        assert one.nobody_dials()
        assert one.said == []


def test_hosts_come_and_go_as_they_are_wanted(engines):
    with driven(engines, "1:3") as one:
        one.wait_num(1)
        assert one.nobody_dials()
        one.order("want 3")
        one.wait_num(3)
        one.order("want 2")
        one.wait_given_back()
        one.order("want 9")
        one.wait_num(3)
        one.order("want 0")
        for _ in range(2):
            one.wait_given_back()
        assert one.nobody_dials()
        assert len(one.hosts) == 1
        assert one.said == []


def test_a_span_from_zero_begins_with_one_and_may_be_given_back(engines):
    with driven(engines, "0:2") as one:
        (first,) = one.wait_num(1)
        one.order("want 0")
        assert one.wait_said("dismiss") == first.name
        first.wait_gone()
        assert one.nobody_dials()
        one.order("want 2")
        first.sock.close()
        del one.hosts[first.name]
        one.wait_num(2)


def test_a_bad_moment_is_told_once_and_passes(engines):
    """No file can be opened by the process that drives the engine; Ray's head does not answer."""
    order, why = "nofile 3", "Too many open files"
    if engines.kind == "ray":
        order, why = "deaf 1", "the head is away"
    with driven(engines, "2") as one:
        found = one.wait_num(2)
        one.order(order)
        if engines.kind == "ray":  # the actor too: the engine must start another
            os.kill(parent_of(found[0].pid), signal.SIGKILL)
        else:
            found[0].end()
        assert why in one.wait_said("tell")
        found[0].wait_gone()
        assert one.nobody_dials()
        one.order(f"{order.split()[0]} 0")
        one.wait_joined()
        assert [line for line in one.said if line.startswith("tell")] == []


def test_hosts_that_reach_no_trainer_are_braked_too(engines):
    """And are told of where somebody else's network may be why."""
    with driven(engines, "1") as one:
        host = one.wait_joined()
        one.listening.close()
        host.end()
        if engines.kind == "ray":
            assert "cannot reach the trainer" in one.wait_said("tell")
        host.wait_gone()
