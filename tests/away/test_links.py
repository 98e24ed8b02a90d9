"""Hosts behind a link of their own: TLS, coded batches, a thin link, one that is cut and comes back.

The hosts run in a network namespace, joined to this one by a veth pair that only these tests use.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from stoker.clock import Deadline
from stoker.intercept import run
from stoker.plane.auth import versions
from stoker.plane.fleet import Fleet
from tests.away.conftest import SETTINGS
from tests.equality.sides import both

PATIENCE_S = 60.0
HERE, THERE = "10.213.77.1", "10.213.77.2"
NAME = f"stoker-{os.getpid()}"
ENTER = f"""
import os, sys
os.execvp("ip", ["ip", "netns", "exec", "{NAME}", sys.executable, "-m", "stoker.plane.host"])
"""


def may_make_namespaces() -> bool:
    return os.geteuid() == 0 and shutil.which("ip") is not None and shutil.which("tc") is not None


pytestmark = [
    pytest.mark.skipif(not may_make_namespaces(), reason="needs root, ip and tc"),
    pytest.mark.slow,
]


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> None:
    """In place of the one of tests/conftest.py: hosts that were lost are other processes now."""


def do(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


@pytest.fixture(scope="module")
def link() -> Iterator[str]:
    """The name of this side's end of the link."""
    end = f"st{os.getpid() % 100_000}"
    try:
        do("ip", "netns", "add", NAME)
        do("ip", "link", "add", end, "type", "veth", "peer", "name", "veth0", "netns", NAME)
        do("ip", "addr", "add", f"{HERE}/30", "dev", end)
        do("ip", "link", "set", end, "up")
        do("ip", "-n", NAME, "addr", "add", f"{THERE}/30", "dev", "veth0")
        do("ip", "-n", NAME, "link", "set", "veth0", "up")
        do("ip", "-n", NAME, "link", "set", "lo", "up")
        yield end
    finally:
        for words in (("link", "del", end), ("netns", "del", NAME)):
            subprocess.run(["ip", *words], check=False, capture_output=True)


@pytest.fixture(scope="module")
def fleet(seed: None, link: str) -> Iterator[Fleet]:
    """In place of the folder's own: its hosts are behind the link."""
    said: list[str] = []
    more = {"versions": versions(), "folder": None, "bind": HERE, "host": ["-c", ENTER]}
    made = Fleet(SETTINGS | more, said.append)
    made.said = said
    made.wait(lambda: made.num_hosts == 2, Deadline(PATIENCE_S))
    assert made.num_hosts == 2, said
    for number, lender in [made.take_arena(1 << 32) for _ in range(8)]:
        made.give_arena(number, lender)
    yield made
    made.close()


@contextlib.contextmanager
def held_to(link: str, rate: str) -> Iterator[None]:
    """Both ways: what the hosts send is shaped where they are."""
    shape = ("root", "tbf", "rate", rate, "burst", "128kb", "latency", "50ms")
    do("tc", "qdisc", "add", "dev", link, *shape)
    do("tc", "-n", NAME, "qdisc", "add", "dev", "veth0", *shape)
    try:
        yield
    finally:
        do("tc", "qdisc", "del", "dev", link, "root")
        do("tc", "-n", NAME, "qdisc", "del", "dev", "veth0", "root")


class Images(Dataset):
    """Normalised, so that they can be coded; cropped at random, so that chains draw."""

    def __init__(self, num_samples: int) -> None:
        self.num_samples = num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        pixels = torch.randint(0, 256, (3, 96, 96))
        return (pixels / 255 - 0.45) / 0.225, index


def loader(num_samples: int = 160):
    return lambda num_workers: DataLoader(Images(num_samples), 8, True, num_workers=num_workers)


def test_batches_over_tls_are_those_of_torch_and_images_travel_in_fewer_bytes(places, link):
    with held_to(link, "300mbit"):
        both(loader(), iter)
    assert places.num_away > 0, places.said
    stats = [driver.stats for driver in places.drivers]
    assert sum(s.raw_nbytes for s in stats) > 3 * sum(s.wire_nbytes for s in stats)


def test_a_link_that_is_cut_and_comes_back_changes_nothing(places, fleet, link):
    """The hosts are silent, not dead: they are given up, the epoch goes on, and they join again."""

    def cut_in_the_middle(subject):
        for number, batch in enumerate(subject):
            if number == 10 and run.fleet() is fleet and places.drivers:
                do("ip", "link", "set", link, "down")
                fleet.wait(lambda: fleet.num_hosts == 0, Deadline(PATIENCE_S))
                do("ip", "link", "set", link, "up")
            yield batch
        if places.drivers:
            fleet.wait(lambda: fleet.num_hosts == 2, Deadline(PATIENCE_S))

    both(loader(400), cut_in_the_middle)
    assert places.num_away > 0 and fleet.num_hosts == 2, places.said
    both(loader(), iter)
    assert places.drivers[-1].stats.num_away > 0
