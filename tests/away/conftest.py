"""Every loader's chains on other machines: hosts of a fleet that all tests of this folder share.

They are actors of a Ray of two nodes, or, where Ray is not installed, plain processes.
A loop begins when the hosts have unpacked its job, and this machine keeps no chain for itself: so
that a test that passes says what was made elsewhere.
"""

from collections.abc import Iterator

import pytest

from stoker.clock import Deadline
from stoker.cluster.sizing import machine_nbytes
from stoker.intercept import run
from stoker.plane.auth import versions
from stoker.plane.fleet import Fleet
from stoker.stream import helpers
from stoker.stream.driver import Driver
from tests.process.nodes import ray_of
from tests.process.test_deploy import RAY

PATIENCE_S = 60.0
NUM_HOSTS = 2
NUM_ARENAS = 32
SETTINGS = {
    "cluster": f"processes:{NUM_HOSTS}",
    "workers": None,
    "bind": None,
    "no_tls": False,
    "allow_mismatch": False,
    "folder": None,
}


@pytest.fixture(scope="package", autouse=True)
def seed() -> Iterator[None]:
    """As `stoker run --cluster` sets one; nothing here depends on how strings hash."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONHASHSEED", "1")
        yield


@pytest.fixture(scope="package")
def cluster() -> Iterator[str]:
    if not RAY.exists():
        yield SETTINGS["cluster"]
        return
    with ray_of(*[1] * NUM_HOSTS) as nodes, pytest.MonkeyPatch.context() as patch:
        for name, value in nodes.token.items():
            patch.setenv(name, value)
        yield nodes.address


@pytest.fixture(scope="package")
def fleet(seed: None, cluster: str) -> Iterator[Fleet]:
    said: list[str] = []
    made = Fleet(SETTINGS | {"versions": versions(), "cluster": cluster}, said.append)
    made.said = said
    made.wait(lambda: made.num_hosts == NUM_HOSTS, Deadline(PATIENCE_S))
    assert made.num_hosts == NUM_HOSTS, said
    for number, lender in [made.take_arena(machine_nbytes()) for _ in range(NUM_ARENAS)]:
        made.give_arena(number, lender)  # they stay, and are no leak of the test that needs them
    yield made
    made.close()


class Places:
    """What a test may ask: how many batches other machines made, and what was said."""

    def __init__(self) -> None:
        self.drivers: list[Driver] = []
        self.said: list[str] = []

    @property
    def num_away(self) -> int:
        return sum(driver.stats.num_away for driver in self.drivers)


@pytest.fixture(autouse=True)
def places(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    seen = Places()
    fleet.said.clear()
    seen.said = fleet.said
    original = Driver.__init__

    def wait_for_places(self: Driver, *args: object, **kwargs: object) -> None:
        original(self, *args, **kwargs)
        seen.drivers.append(self)
        if self._helpers is not None:
            away = self._helpers.away
            fleet.wait(
                lambda: away.num_places == NUM_HOSTS or bool(away.cannot), Deadline(PATIENCE_S)
            )
            self._hear_helpers()

    monkeypatch.setattr(run, "fleet", lambda: fleet)
    monkeypatch.setattr(helpers, "local_slots", lambda num_cores, busy: 0)
    monkeypatch.setattr(Driver, "__init__", wait_for_places)
    yield seen
