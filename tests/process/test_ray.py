"""`--cluster HOST:PORT` with a real Ray of several nodes, each on an address of this machine.

What dies on a host is tests/process/test_away.py's; here it is Ray that comes, goes and is left clean.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.conftest import wait_until_gone
from tests.process.harness import Running, environ_of, started, under_stoker
from tests.process.test_away import KINDS, ORDERS, Trainer
from tests.process.test_deploy import (
    RAY,
    TIMEOUT_S,
    bare_hosts,
    free_port,
    processes_with,
    wait_for_line,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not RAY.exists(), reason="ray is not installed"),
]

GONE_WITHIN_S = 10.0  # the promise: docs/guarantees.md, G5


@dataclass
class Nodes:
    """A Ray cluster: the head has no CPUs, each further node one."""

    home: Path
    port: int
    env: dict[str, str]
    running: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def add(self, address: str, *words: str, **more: str) -> None:
        process = bare_hosts(*words, env=self.env | {"NODE_IP": address} | more)
        self.running[address] = process
        wait_for_line(process, "block forever")

    def join(self, address: str) -> None:
        self.add(address, "join", self.address, CPUS="1")

    def kill(self, address: str) -> None:
        """The node's raylet and whoever started it, with no chance to say goodbye."""
        process = self.running.pop(address)
        raylets = [pid for pid in processes_with(f"--node_ip_address={address}") if is_raylet(pid)]
        assert raylets
        for pid in (process.pid, *raylets):
            os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=TIMEOUT_S)

    def end(self) -> None:
        for process in reversed(self.running.values()):
            process.terminate()
        for process in self.running.values():
            process.communicate(timeout=TIMEOUT_S)


def is_raylet(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip() == "raylet"
    return False


def hosts(nodes: Nodes) -> frozenset[int]:
    """Of this cluster: they have the environment that its nodes were started with."""
    ours = f"HOME={nodes.home}".encode()
    found = processes_with("stoker.host.host")
    of_ours = (pid for pid in found if ours in environ_of(Path(f"/proc/{pid}")))
    return frozenset(pid for pid in of_ours if is_leader(pid))


def is_leader(pid: int) -> bool:
    """A host leads a session; what it forks does not."""
    with contextlib.suppress(ProcessLookupError):
        return os.getsid(pid) == pid
    return False


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> None:
    """In place of the one of tests/conftest.py: nodes that a test adds stay for the next."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    home = Path(f"/tmp/stoker-ray-{os.getpid()}")
    home.mkdir()
    made = Nodes(home, free_port(), {})
    keep = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    made.env = keep | {
        "HOME": str(home),
        "STOKER_ENV": str(RAY.parents[1]),
        "TEMP": str(home / "r"),
        "PORT": str(made.port),
        "CLIENT_PORT": str(free_port()),
        # Ray takes 16 s to call a node dead by default
        "RAY_health_check_initial_delay_ms": "500",
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_timeout_ms": "1000",
        "RAY_health_check_failure_threshold": "3",
    }
    try:
        made.add("127.0.0.1", "head")
        made.join("127.0.0.2")
        made.join("127.0.0.3")
        yield made
    finally:
        made.end()
        left = processes_with(str(home))
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        subprocess.run(["rm", "-rf", str(home)], check=True)


@contextlib.contextmanager
def trainer(nodes: Nodes, folder: Path, *flags: str) -> Iterator[Trainer]:
    env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(nodes.home / ".ray/auth_token")}
    prefix = under_stoker(f"--cluster={nodes.address}", *flags)
    with started([*prefix, *ORDERS], folder, stdin=None, environ=env) as running:
        yield Trainer(running)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    with started(ORDERS, tmp_path_factory.mktemp("plain"), stdin=None) as running:
        one = Trainer(running)
        one.open(*KINDS)
        digests = one.rest(*KINDS)
        end(running)
        return digests


def end(running: Running) -> None:
    assert running.process.stdin is not None
    running.process.stdin.close()
    assert running.process.wait(TIMEOUT_S) == 0, running.read("stderr")


def test_actors_make_the_batches_of_every_kind_and_none_stays_in_the_cluster(
    nodes, plain, tmp_path
):
    with trainer(nodes, tmp_path) as one:
        one.open(*KINDS, num_hosts=2)
        one.to_the_middle(*KINDS)
        assert one.rest(*KINDS) == plain
        of_the_run = hosts(nodes)
        assert len(of_the_run) >= 2
        end(one.running)
        wait_until_gone(of_the_run, GONE_WITHIN_S)
        assert hosts(nodes) == frozenset()


def test_a_trainer_that_is_killed_leaves_no_actor(nodes, tmp_path):
    with trainer(nodes, tmp_path) as one:
        one.open("draws", num_hosts=2)
        one.to_the_middle("draws")
        of_the_run = hosts(nodes)
        one.running.signal(signal.SIGKILL)
        one.running.process.wait(TIMEOUT_S)
        wait_until_gone(of_the_run, GONE_WITHIN_S)
        assert hosts(nodes) == frozenset()


def test_a_node_that_dies_and_one_that_joins_change_nothing(nodes, plain, tmp_path):
    kinds = ("draws", "nothing")
    with trainer(nodes, tmp_path) as one:
        one.open(*kinds, num_hosts=2)
        one.to_the_middle(*kinds)
        nodes.kill("127.0.0.3")
        nodes.join("127.0.0.4")
        for kind in kinds:
            one.order(f"hosts {kind} 2")
        assert one.rest(*kinds) == {kind: plain[kind] for kind in kinds}
        end(one.running)


def test_no_more_workers_are_asked_for_than_wanted(nodes, plain, tmp_path):
    with trainer(nodes, tmp_path, "--workers=1") as one:
        one.open("draws", num_hosts=1)
        one.to_the_middle("draws")
        assert len(hosts(nodes)) == 1
        assert one.rest("draws") == {"draws": plain["draws"]}
        end(one.running)


def test_where_nobody_answers_the_command_is_not_started(tmp_path):
    prefix = under_stoker(f"--cluster=127.0.0.1:{free_port()}")
    with started([*prefix, *ORDERS], tmp_path, stdin=None) as running:
        assert running.process.wait(TIMEOUT_S) == 69
        assert "nobody answers" in running.read("stderr")
