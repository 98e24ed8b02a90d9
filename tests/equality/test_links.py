"""Hosts behind a link of their own: TLS, coded batches, a thin link, one that is cut and comes back.

The hosts run in a network namespace, joined to this one by a veth pair that only these tests use.
"""

import sys
from collections.abc import Iterator

import pytest
from benchmarks import behind_link
from benchmarks.behind_link import END, HERE, beyond, do, held_to
from torch.utils.data import DataLoader

from stoker.clock import Deadline
from stoker.intercept import run
from stoker.remote.engines.processes import HOST
from stoker.remote.trainer.fleet import Fleet
from tests.equality.fleets import NUM_HOSTS, SETTINGS, fleet_of
from tests.equality.images import Images
from tests.equality.sides import both
from tests.needs import NEEDS_NAMESPACES

PATIENCE_S = 60.0
HOST_WORDS = (sys.executable, *HOST)

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("cluster"), NEEDS_NAMESPACES]


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> None:
    """In place of the one of tests/conftest.py: hosts that were lost are other processes now."""


@pytest.fixture(scope="module")
def link() -> Iterator[None]:
    with behind_link.link():
        yield


@pytest.fixture(scope="module")
def fleet(link: None) -> Iterator[Fleet]:
    """In place of the folder's own: its hosts are behind the link."""
    yield from fleet_of(SETTINGS["cluster"], bind=HERE, host=beyond(HOST_WORDS))


def loader(num_samples: int = 160):
    return lambda num_workers: DataLoader(Images(num_samples), 8, True, num_workers=num_workers)


def test_batches_over_tls_are_those_of_torch_and_images_travel_in_fewer_bytes(places):
    with held_to("100mbit", burst="128kb"):
        both(loader(320), iter)
    assert places.num_away > 0, places.said
    stats = [driver.stats for driver in places.drivers]
    assert sum(s.raw_nbytes for s in stats) > 3 * sum(s.wire_nbytes for s in stats)


def test_a_link_that_is_cut_and_comes_back_changes_nothing(places, fleet):
    """The hosts are silent, not dead: they are given up, the epoch goes on, and they join again."""

    def cut_in_the_middle(subject):
        for number, batch in enumerate(subject):
            if number == 10 and run.fleet() is fleet and places.drivers:
                do("ip", "link", "set", END, "down")
                fleet.wait(lambda: fleet.num_hosts == 0, Deadline(PATIENCE_S))
                do("ip", "link", "set", END, "up")
            yield batch
        if places.drivers:
            fleet.wait(lambda: fleet.num_hosts == NUM_HOSTS, Deadline(PATIENCE_S))

    both(loader(400), cut_in_the_middle)
    assert places.num_away > 0 and fleet.num_hosts == NUM_HOSTS, places.said
    both(loader(), iter)
    assert places.drivers[-1].stats.num_away > 0
