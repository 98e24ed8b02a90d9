"""`--cluster HOST:PORT` with a real Ray of several nodes, each on an address of this machine.

What dies on a host is tests/process/test_away.py's; here it is Ray that comes, goes and is left clean.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import wait_until_gone
from tests.needs import NEEDS_RAY
from tests.process import pages
from tests.process.away import KINDS, ORDERS, Trainer
from tests.process.harness import SCRIPTS, Running, environ_of, started, under_stoker
from tests.process.nodes import TIMEOUT_S, Nodes, free_port, processes_with, ray_of

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("cluster"), NEEDS_RAY]

GONE_WITHIN_S = 10.0  # the promise: docs/guarantees.md, G5


def hosts(nodes: Nodes) -> frozenset[int]:
    """Of this cluster: they have the environment that its nodes were started with."""
    ours = f"HOME={nodes.home}".encode()
    found = processes_with("stoker.remote.host.start")
    of_ours = (pid for pid in found if ours in environ_of(Path(f"/proc/{pid}")))
    return frozenset(pid for pid in of_ours if is_leader(pid))


def is_leader(pid: int) -> bool:
    """A host leads its process group; what it forks does not."""
    with contextlib.suppress(ProcessLookupError):
        return os.getpgid(pid) == pid
    return False


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> None:
    """In place of the one of tests/conftest.py: nodes that a test adds stay for the next."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with ray_of(1, 1) as made:
        yield made


@contextlib.contextmanager
def trainer(
    nodes: Nodes, folder: Path, *flags: str, environ: dict[str, str] | None = None
) -> Iterator[Trainer]:
    prefix = under_stoker(f"--cluster={nodes.address}", *flags)
    with started(
        [*prefix, *ORDERS], folder, stdin=None, environ=nodes.token | (environ or {})
    ) as running:
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


def test_two_runs_have_half_of_the_cpus_each_and_the_last_has_all(tmp_path, plain):
    """And `stoker status` tells of both, from a shell that belongs to neither."""
    with ray_of(2, 2) as nodes:
        with trainer(nodes, tmp_path / "first") as first:
            first.open("own", num_hosts=4)
            with trainer(nodes, tmp_path / "second") as second:
                second.open("draws", num_hosts=2)
                first.order("fewer own 2")
                told = status(nodes)
                as_text = ask_status(nodes)
                first.order("drop own")
                end(first.running)
                second.order("hosts draws 4")
                assert second.rest("draws") == {"draws": plain["draws"]}
                end(second.running)
        assert "is lost" not in first.running.read("stderr")
    assert pages.unsaid(shown_of_status(), as_text) == []
    assert sorted(
        (run["script"], run["pid"], run["num_running"], run["num_wanted"]) for run in told["runs"]
    ) == sorted(("away_orders.py", one.running.process.pid, 2, None) for one in (first, second))
    assert sorted((node["node"], node["cpus"]) for node in told["nodes"] if node["cpus"]) == [
        ("127.0.0.2", 2),
        ("127.0.0.3", 2),
    ]


def shown_of_status() -> list[str]:
    """The tables on docs/cluster.md, with this machine and the tests' script in them."""
    (lines,) = (
        block.shown for block in pages.blocks()
        if block.page == "docs/cluster.md" and "stoker status" in block.commands[0]
    )  # fmt: skip
    ours = f"away_orders.py {socket.gethostname()}"
    return [re.sub(r"^(train|tune)\.py +gpu\d", ours, line) for line in lines]


def ask_status(nodes: Nodes, *flags: str) -> str:
    command = [sys.executable, "-m", "stoker", "status", "--cluster", nodes.address, *flags]
    ran = subprocess.run(
        command, env=os.environ | nodes.token, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def status(nodes: Nodes) -> dict[str, Any]:
    """What `stoker status` says once two runs have told of two hosts each."""
    while True:
        told = json.loads(ask_status(nodes, "--json"))
        if [run.get("num_running") for run in told["runs"]] == [2, 2]:
            return told


PACKAGE = {
    "pack/__init__.py": "",
    "pack/data.py": """
import torch
from torch.utils.data import Dataset

class Squares(Dataset):
    def __len__(self): return 64
    def __getitem__(self, index): return torch.tensor(index * index)
""",
    "pack/train.py": f"""
import sys
sys.path.append({str(SCRIPTS)!r})
from away_hosts import num_away, tell, wait_for_hosts
from torch.utils.data import DataLoader
from .data import Squares

iterator = iter(DataLoader(Squares(), batch_size=4, num_workers=2))
wait_for_hosts(iterator, 1)
tell(f"sum {{sum(int(batch.sum()) for batch in iterator)}}")
tell(f"away {{num_away(iterator)}}")
""",
}


def test_a_package_run_by_its_name_is_shipped_whole(nodes, tmp_path):
    code = tmp_path / "code"
    for name, text in PACKAGE.items():
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(text)
    command = [*under_stoker(f"--cluster={nodes.address}"), sys.executable, "-m", "pack.train"]
    with started(command, tmp_path, cwd=code, environ=nodes.token) as running:
        assert int(running.wait_for("sum")) == sum(k * k for k in range(64))
        assert int(running.wait_for("away")) > 0, running.read("stderr")


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


PATIENCE = "RAY_gcs_rpc_server_reconnect_timeout_s"  # of whoever has lost Ray's head; Ray's is 60


def test_epochs_outlive_rays_head(plain, tmp_path):
    """With hosts for as long as their nodes wait for a head, then with this machine alone."""
    impatient = {PATIENCE: "5"}
    with ray_of(1, 1, **impatient) as own, trainer(own, tmp_path, environ=impatient) as one:
        one.open("draws", "nothing", num_hosts=2)
        one.to_the_middle("draws", "nothing")
        of_the_run = hosts(own)
        own.kill_head()
        assert one.rest("draws") == {"draws": plain["draws"]}
        wait_until_gone(of_the_run, TIMEOUT_S)
        assert one.rest("nothing") == {"nothing": plain["nothing"]}
        end(one.running)
        assert "Traceback" not in one.running.read("stderr")


def test_no_host_outlives_a_trainer_whose_ray_has_no_head(tmp_path):
    with ray_of(1, 1) as own, trainer(own, tmp_path) as one:
        one.open("draws", num_hosts=2)
        own.kill_head()
        of_the_run = hosts(own)
        one.running.signal(signal.SIGKILL)
        wait_until_gone(of_the_run, GONE_WITHIN_S)
        end_s = time.monotonic() + GONE_WITHIN_S
        while started_again := hosts(own):
            wait_until_gone(started_again, end_s - time.monotonic())
            assert time.monotonic() < end_s, started_again
