"""The same tests, with every chain on other machines: hosts of a fleet that all of them share.

A module of AWAY holds each of its tests twice: here, and with [away]. The hosts are plain
processes; in the full tier actors of a Ray of two nodes, where Ray is installed. A loop begins when
the hosts have unpacked its job, and this machine keeps no chain for itself: so that a test that
passes says what was made elsewhere.
"""

import multiprocessing
from collections.abc import Iterator

import pytest

from stoker.clock import Deadline
from stoker.intercept import run
from stoker.loaders.driver import Driver, helpers
from stoker.remote.trainer.fleet import Fleet
from tests.equality.fleets import NUM_CPUS, NUM_HOSTS, PATIENCE_S, SETTINGS, Places, fleet_of
from tests.needs import RAY
from tests.process.nodes import ray_of

AWAY = {
    "batches", "odd_batches_away", "exceptions", "in_process", "iterables", "kept", "kills", "loaders", "many_loaders",
    "matrix", "random", "saved_states", "stateful", "streamed", "mapped",
}  # fmt: skip


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Marks: `here` and `away` say that a test is of one place alone; `away_by_default`, that the
    default tier has it in both. In the full tier every other one is in both, too."""
    if metafunc.module.__name__.rpartition("test_")[2] not in AWAY:
        return
    marks = {mark.name for mark in metafunc.definition.iter_markers()}
    places = []
    one_process = pytest.mark.xdist_group("cluster")
    if "away" not in marks:
        # beside its twin elsewhere, if there is one: torch's side is played once for both
        more = [one_process] if "away_by_default" in marks else []
        places.append(pytest.param(None, id=pytest.HIDDEN_PARAM, marks=more))
    if "here" not in marks:
        is_default = marks & {"away", "away_by_default"}
        more = [one_process] if is_default else [one_process, pytest.mark.full]
        places.append(pytest.param(SETTINGS["cluster"], id="away", marks=more))
    metafunc.parametrize("fleet", places, indirect=True, scope="package")


@pytest.fixture(autouse=True)
def forks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Only where a test is marked so, or its dataset's class."""
    before = multiprocessing.get_start_method()
    case = getattr(request.node, "callspec", None)
    is_kind = case is not None and getattr(case.params.get("kind"), "forks", False)
    if before == "fork" or not (is_kind or request.node.get_closest_marker("forks")):
        yield
        return
    multiprocessing.set_start_method("fork", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


@pytest.fixture(scope="package", autouse=True)
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet | None]:
    """None: the test's chains are here."""
    cluster = getattr(request, "param", None)
    if cluster is None:
        yield None
        return
    with pytest.MonkeyPatch.context() as patch:
        # as `stoker run --cluster` sets one; nothing here depends on how strings hash
        patch.setenv("PYTHONHASHSEED", "1")
        if request.config.getoption("--full") and RAY.exists():
            # no node of these dies, however slow it is beside another test
            with ray_of(*[NUM_CPUS] * NUM_HOSTS, RAY_health_check_timeout_ms="30000") as nodes:
                for name, value in nodes.token.items():
                    patch.setenv(name, value)
                yield from fleet_of(nodes.address)
        else:
            yield from fleet_of(cluster)


@pytest.fixture(autouse=True)
def places(fleet: Fleet | None, monkeypatch: pytest.MonkeyPatch) -> Places | None:
    if fleet is None:
        return None
    seen = Places()
    fleet.said.clear()
    seen.said = fleet.said
    original = Driver.__init__

    def wait_for_places(self: Driver, *args: object, **kwargs: object) -> None:
        original(self, *args, **kwargs)
        seen.drivers.append(self)
        if isinstance(self._helpers, helpers.Helpers):
            away = self._helpers.away
            fleet.wait(
                lambda: away.capacity == NUM_HOSTS * NUM_CPUS or bool(away.cannot),
                Deadline(PATIENCE_S),
            )
            self._hear_helpers()

    monkeypatch.setattr(run, "fleet", lambda: fleet)
    monkeypatch.setattr(helpers, "local_slots", lambda num_cores, busy: 0)
    monkeypatch.setattr(Driver, "__init__", wait_for_places)
    return seen
