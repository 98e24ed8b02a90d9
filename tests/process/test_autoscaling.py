"""`--workers MIN:MAX` on a Ray whose autoscaler starts and stops nodes: they come when workers wait for
room, and go when those that were given back have left them idle.

The nodes are real, and processes of this machine: Ray's own provider for tests of its autoscaler.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import parent_of, wait_until_gone
from tests.contract.driven import Engines, driven
from tests.needs import NEEDS_RAY, RAY
from tests.process.away import ORDERS, Trainer
from tests.process.harness import started, under_stoker
from tests.process.nodes import TIMEOUT_S, free_port, is_raylet, processes_with, wait_for_line

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("cluster"), NEEDS_RAY]

HEAD = "f" * 51 + "00000"  # the provider knows its head by this
PROVIDER = "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"
IDLE_MIN = 0.05
CPUS = 2  # of each node


@dataclass
class Growing:
    """A Ray that begins with a head alone."""

    home: Path
    port: int
    head: int  # pid of its raylet

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def token(self) -> dict[str, str]:
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.home / "token")}

    def nodes(self) -> set[int]:
        """Pids of the raylets of all nodes but the head."""
        return raylets(self.home) - {self.head}


def raylets(home: Path) -> set[int]:
    return {pid for pid in processes_with(str(home)) if is_raylet(pid)}


def raylet_of_run_actor() -> int:
    """Waits until the one run has told the cluster of itself."""
    end_s = time.monotonic() + TIMEOUT_S
    while not (found := processes_with("ray::RunActor")):
        assert time.monotonic() < end_s
        time.sleep(0.1)
    (pid,) = found
    return parent_of(pid)


def config(port: int, head_cpus: int) -> str:
    lists = ["cluster_synced_files", "rsync_exclude", "rsync_filter", "initialization_commands"]
    lists += [f"{who}setup_commands" for who in ("", "head_", "worker_")]
    lists += [f"{who}_start_ray_commands" for who in ("head", "worker")]
    head = {"resources": {"CPU": head_cpus}, "node_config": {}, "max_workers": 0}
    node = {"resources": {"CPU": CPUS}, "node_config": {}, "min_workers": 0, "max_workers": 3}
    provider = {"type": "external", "module": PROVIDER, "launch_multiple": True}
    provider["use_node_id_as_ip"] = True  # all have this machine's
    return json.dumps(
        {name: [] for name in lists}
        | {
            "cluster_name": "stoker",
            "max_workers": 3,
            "upscaling_speed": 10,
            "idle_timeout_minutes": IDLE_MIN,
            "provider": provider | {"head_node_id": HEAD, "gcs_address": f"127.0.0.1:{port}"},
            "auth": {},
            "head_node_type": "ray.head.default",
            "available_node_types": {"ray.head.default": head, "node": node},
            "file_mounts": {},
            "file_mounts_sync_continuously": False,
        }
    )


# Ray's two autoscalers; the older one does not know labels, so that its head must have no CPUs, as
# in deploy/.
@pytest.fixture(scope="module", params=["v1", "v2"])
def growing(request: pytest.FixtureRequest) -> Iterator[Growing]:
    is_v2 = request.param == "v2"
    home, port = Path(f"/tmp/stoker-as-{os.getpid()}"), free_port()
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    (home / "token").write_text("1" * 64)
    (home / "config").write_text(config(port, 2 if is_v2 else 0))
    made = Growing(home, port, 0)
    env = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    env |= made.token | {"HOME": str(home), "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
    env |= {"RAY_FAKE_CLUSTER": "1"}
    if is_v2:
        own = dict.fromkeys(["RAY_CLOUD_INSTANCE_ID", "RAY_OVERRIDE_NODE_ID_FOR_TESTING"], HEAD)
        env |= own | {"RAY_enable_autoscaler_v2": "1"}
    words = ["start", "--head", "--block", "--disable-usage-stats", f"--port={port}"]
    words += [f"--ray-client-server-port={free_port()}", "--node-ip-address=127.0.0.1"]
    words += [f"--temp-dir={home / 'r'}", f"--num-cpus={2 if is_v2 else 0}"]
    words += ["--include-dashboard=false", f"--autoscaling-config={home / 'config'}"]
    process = subprocess.Popen(
        [RAY, *words],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for_line(process, "block forever")
        (made.head,) = raylets(home)
        yield made
    finally:
        process.terminate()
        process.communicate(timeout=TIMEOUT_S)
        for pid in processes_with(str(home)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(home)


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> None:
    """In place of the one of tests/conftest.py: nodes outlive a test."""


def test_nodes_come_when_wanted_and_go_when_given_back(growing):
    with driven(Engines("ray", growing.address, growing.token), "1:6") as one:
        (first,) = one.wait_cpus(1)
        (node,) = growing.nodes()
        one.order(f"want {CPUS + 1}")
        one.wait_cpus(CPUS + 1)
        (newer,) = growing.nodes() - {node}
        # Where it would keep a node from going.
        assert raylet_of_run_actor() == growing.head
        one.order("want 1")
        one.wait_cpus(1)
        wait_until_gone(frozenset({newer}), TIMEOUT_S)
        end_s = time.monotonic() + TIMEOUT_S
        while late := growing.nodes() - {node}:  # asked for while the newer one was on its way
            wait_until_gone(frozenset(late), end_s - time.monotonic())
            assert time.monotonic() < end_s, late
        assert node in growing.nodes()
        assert list(one.hosts.values()) == [first]
        assert one.nobody_dials()
    wait_until_gone(frozenset({node}), TIMEOUT_S)
    assert growing.nodes() == set()


def test_a_run_on_a_cluster_without_nodes_gets_one_and_gives_it_back(growing, tmp_path):
    with started(ORDERS, tmp_path / "plain", stdin=None) as running:
        plain = batches(running, 0)
    prefix = under_stoker(f"--cluster={growing.address}", "--workers=1:2")
    with started([*prefix, *ORDERS], tmp_path, stdin=None, environ=growing.token) as running:
        assert batches(running, 1) == plain
    wait_until_gone(frozenset(growing.nodes()), TIMEOUT_S)
    assert growing.nodes() == set()


def batches(running, num_hosts):
    one = Trainer(running)
    one.open("draws", num_hosts=num_hosts)
    one.to_the_middle("draws")
    digests = one.rest("draws")
    running.process.stdin.close()
    assert running.process.wait(TIMEOUT_S) == 0, running.read("stderr")
    return digests
