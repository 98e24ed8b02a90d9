"""A trainer with `--cluster` that takes orders, and who is who among the processes of its hosts."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.harness import Finished, Running, marked, started, under_stoker

NUM_HOSTS = 3
AWAY = under_stoker(f"--cluster=processes:{NUM_HOSTS}")
ORDERS = [sys.executable, "away_orders.py"]
KINDS = ("draws", "own", "nothing", "iterable")
LONG = ("draws:200", "own:60")  # kind and number of batches
HANGS = ("hangs", "hangs-free")
SIZED = "waits:800"
NUM_BATCHES = {"draws": 60, "own": 48, "nothing": 160, "iterable": 48, "dies-free": 160}
NUM_BATCHES |= {"hangs": 120, "hangs-free": 240}
MIDDLE = {"draws": 16, "own": 16, "nothing": 40, "iterable": 16}
GONE_WITHIN_S = 10.0  # of processes on machines that are asked over a network
KNOWN_WITHIN_S = 3.0  # that a process is stopped: the epoch goes on without it
REST_WITHIN_S = 12.0  # of four epochs at once, on a crowded machine; 1 to 3 s on an idle one


# -- who is who --------------------------------------------------------------------------------


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return sorted(found)


def receiver(running: Running) -> int:
    found = {pid for pid, what in marked(running.mark).items() if "trainer.receiver" in what}
    found -= {child for pid in found for child in children(pid)}  # a host, forked and not yet begun
    assert len(found) == 1, marked(running.mark)
    return found.pop()


def hosts(running: Running) -> list[int]:
    return children(receiver(running))


def chains_of(host: int) -> list[int]:
    """Processes that run the dataset's code, by the forker of each job."""
    return [chain for job in children(host) for chain in children(job)]


def chains(running: Running) -> list[int]:
    return [chain for host in hosts(running) for chain in chains_of(host)]


def one_chain_of_each_job(running: Running) -> list[int]:
    """Over all hosts: a chain of the first job, one of the second..."""
    by_job: dict[int, list[int]] = {}
    for host in hosts(running):
        for number, job in enumerate(children(host)):
            by_job.setdefault(number, []).extend(children(job))
    return [found[0] for found in by_job.values() if found]


# -- a script that takes orders --------------------------------------------------------------------


class Trainer:
    """A script under way that iterates as it is told."""

    def __init__(self, running: Running) -> None:
        self.running = running

    def order(self, words: str) -> str:
        self.running.say(words)
        order, name = words.split()[:2]
        said = self.running.wait_for(f"{order} {name}")
        assert not (said and order in ("hosts", "fewer")), (
            words,
            said,
            self.running.read("stderr"),
        )
        return said

    def open(self, *names: str, num_hosts: int = NUM_HOSTS) -> None:
        for name in names:
            kind, _, num = name.partition(":")
            self.order(f"open {name} {kind} {num or NUM_BATCHES.get(name, 48)}")
        for name in names:
            self.order(f"hosts {name} {num_hosts}")

    def to_the_middle(self, *names: str) -> None:
        """A part of each epoch, and until hosts have made some of it."""
        for name in names:
            self.order(f"take {name} {MIDDLE.get(name, 16)}")
            self.order(f"until_away {name} 4")

    def rest(self, *names: str) -> dict[str, str]:
        digests = {}
        for name in names:
            digests[name] = self.order(f"rest {name}")
            self.order(f"drop {name}")
        return digests

    def end(self) -> Finished:
        assert self.running.process.stdin is not None
        self.running.process.stdin.close()
        return ended(self.running)


def ended(running: Running) -> Finished:
    running.process.wait(120)
    left = running.leftovers(GONE_WITHIN_S)
    assert left == {}
    return running.finish()


@contextlib.contextmanager
def trainer(folder: Path, prefix: list[str], **environ: str) -> Iterator[Trainer]:
    with started([*prefix, *ORDERS], folder, stdin=None, environ=environ) as running:
        yield Trainer(running)


class Plain:
    """Digests of whole epochs under plain Python, each played when it is first asked for."""

    def __init__(self, one: Trainer) -> None:
        self._one = one
        self._digests: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        if name not in self._digests:
            self._one.open(name, num_hosts=0)
            self._digests |= self._one.rest(name)
        return self._digests[name]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plain]:
    with trainer(tmp_path_factory.mktemp("plain"), [], HURRY="1") as one:
        yield Plain(one)


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> None:
    """In place of the one of tests/conftest.py: here a trainer outlives a test, its hosts come and
    go, and `ended` looks for what each has left."""
