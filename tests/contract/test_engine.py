"""The promises of `Engine` in remote/engines/engine.py, in the order of their statement, on every engine.

Each is driven by a process of its own (engine_driver.py), as the receiver drives it, and starts hosts
that dial this process (small_host.py), which is their trainer.
"""

import itertools
import os
import signal
from collections.abc import Iterator

import pytest

from stoker.remote.engines.hosts import AGAIN_S
from tests.conftest import parent_of, state_of, wait_until_gone
from tests.contract.driven import GONE_WITHIN_S, NUM_PLACES, Engines, driven
from tests.needs import NEEDS_RAY
from tests.process.nodes import Nodes, ray_of

KINDS = [
    "fake",
    "processes",
    "processes of two CPUs",
    pytest.param("ray", marks=[NEEDS_RAY, pytest.mark.full, pytest.mark.xdist_group("cluster")]),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    with ray_of(1, 2) as made:
        yield made


@pytest.fixture(params=KINDS)
def engines(request: pytest.FixtureRequest) -> Engines:
    if request.param == "processes of two CPUs":
        return Engines("processes", f"processes:{NUM_PLACES}x2", num_cpus=2 * NUM_PLACES)
    if request.param != "ray":
        return Engines(request.param, f"{request.param}:{NUM_PLACES}")
    nodes: Nodes = request.getfixturevalue("cluster")
    return Engines("ray", nodes.address, nodes.token)


@pytest.fixture(autouse=True)
def nothing_is_left_behind(engines: Engines) -> Iterator[None]:
    """In place of the one of tests/conftest.py: a Ray that is shared by tests starts workers of its
    own. `driven` looks for what an engine has left."""
    yield


def test_hosts_for_every_cpu_dial_where_they_were_told(engines):
    with driven(engines) as one:
        found = one.wait_cpus(engines.num_cpus)
        assert len({host.name for host in found}) == len(found)
        assert len({host.pid for host in found}) == len(found)
        assert engines.kind != "ray" or sorted(one.cpus.values()) == [1, 2], "a host a node"
        assert all(host.node for host in found)
        assert one.nobody_dials()


def test_hosts_end_with_the_process_that_drives_the_engine(engines):
    with driven(engines) as one:
        found = one.wait_cpus(engines.num_cpus)
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
        found = one.wait_cpus(engines.num_cpus)
        if engines.has_processes:
            os.kill(found[0].pid, signal.SIGKILL)
        else:
            found[0].end()
        found[0].wait_gone()
        again = one.wait_joined()
        assert again.pid not in [host.pid for host in found]
        assert len(one.hosts) == len(found)
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


def test_no_more_cpus_than_the_setting_allows(engines):
    with driven(engines, "2") as one:
        one.order("want 3")
        one.wait_cpus(2)
        one.order("want 1")
        assert one.nobody_dials()
        assert one.said == []


def test_cpus_come_and_go_as_they_are_wanted(engines):
    with driven(engines, "1:3") as one:
        one.wait_cpus(1)
        assert one.nobody_dials()
        one.order("want 3")
        one.wait_cpus(3)
        one.order("want 2")
        one.wait_cpus(2)
        one.order("want 9")
        one.wait_cpus(3)
        one.order("want 0")
        one.wait_cpus(1)
        assert one.nobody_dials()
        assert len(one.hosts) == 1
        assert one.said == []


def test_a_span_from_zero_begins_with_one_and_may_be_given_back(engines):
    with driven(engines, "0:2") as one:
        one.wait_cpus(1)
        one.order("want 0")
        assert one.wait_cpus(0) == []
        assert one.nobody_dials()
        one.order("want 2")
        one.wait_cpus(2)


def test_a_bad_moment_is_told_once_and_passes(engines):
    """No file can be opened by the process that drives the engine; Ray's head does not answer."""
    order, why = "nofile 3", "Too many open files"
    if engines.kind == "ray":
        order, why = "deaf 1", "the head is away"
    with driven(engines, "2") as one:
        found = one.wait_cpus(2)
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


@pytest.mark.full
def test_hosts_that_reach_no_trainer_are_braked_too(engines):
    """And are told of where somebody else's network may be why."""
    with driven(engines, "1") as one:
        host = one.wait_joined()
        one.listening.close()
        host.end()
        if engines.kind == "ray":
            assert "cannot reach the trainer" in one.wait_said("tell")
        host.wait_gone()
