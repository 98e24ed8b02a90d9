"""Fleets of hosts for tests, and what a test may ask of them."""

from collections.abc import Iterator

from stoker.clock import Deadline
from stoker.loaders.driver import Driver
from stoker.local.sizing import machine_nbytes
from stoker.remote.net.auth import versions
from stoker.remote.trainer.fleet import Fleet

PATIENCE_S = 180.0  # Ray's hosts take 40 s on a slow day, more beside another test
NUM_HOSTS = 1  # tests/process/test_away.py has several
NUM_CPUS = 2  # of each
NUM_ARENAS = 32
SETTINGS = {
    "cluster": f"processes:{NUM_HOSTS}x{NUM_CPUS}",
    "workers": None,
    "bind": None,
    "no_tls": False,
    "allow_mismatch": False,
    "folder": None,
}


def fleet_of(cluster: str, **more: object) -> Iterator[Fleet]:
    said: list[str] = []
    made = Fleet(SETTINGS | {"versions": versions(), "cluster": cluster} | more, said.append)
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
