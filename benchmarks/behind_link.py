"""Hosts in a network namespace of their own, joined to the trainer by a veth pair.

Needs root, ip and tc. The namespace, the link and all processes are gone at the end.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

from stoker.clock import Deadline
from stoker.config import Settings
from stoker.intercept import patches, run
from stoker.loaders.driver import helpers
from stoker.remote.net.auth import versions
from stoker.remote.trainer.fleet import Fleet

PATIENCE_S = 120.0
HERE, THERE = "10.213.78.1", "10.213.78.2"
NAME, END = f"stoker-bench-{os.getpid()}", f"sb{os.getpid() % 100_000}"
RAW_HOST = "import sys; from stoker.remote.host import host, start; host.Encoder = lambda: None; sys.exit(start.run())"


def do(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


@contextlib.contextmanager
def link(rate: str = "") -> Iterator[None]:
    """rate: as tc takes it, of either direction; empty: as fast as it goes."""
    try:
        do("ip", "netns", "add", NAME)
        do("ip", "link", "add", END, "type", "veth", "peer", "name", "veth0", "netns", NAME)
        do("ip", "addr", "add", f"{HERE}/30", "dev", END)
        do("ip", "link", "set", END, "up")
        do("ip", "-n", NAME, "addr", "add", f"{THERE}/30", "dev", "veth0")
        do("ip", "-n", NAME, "link", "set", "veth0", "up")
        do("ip", "-n", NAME, "link", "set", "lo", "up")
        with held_to(rate) if rate else contextlib.nullcontext():
            yield
    finally:
        for words in (("link", "del", END), ("netns", "del", NAME)):
            subprocess.run(["ip", *words], check=False, capture_output=True)


@contextlib.contextmanager
def held_to(rate: str, burst: str = "1mb") -> Iterator[None]:
    """Both ways: what the hosts send is shaped where they are."""
    shape = ("root", "tbf", "rate", rate, "burst", burst, "latency", "50ms")
    do("tc", "qdisc", "add", "dev", END, *shape)
    do("tc", "-n", NAME, "qdisc", "add", "dev", "veth0", *shape)
    try:
        yield
    finally:
        do("tc", "qdisc", "del", "dev", END, "root")
        do("tc", "-n", NAME, "qdisc", "del", "dev", "veth0", "root")


def beyond(words: Sequence[str]) -> list[str]:
    """What Python runs to be this command at the other end of the link."""
    return ["-c", f"import os; os.execvp('ip', {['ip', 'netns', 'exec', NAME, *words]!r})"]


@contextlib.contextmanager
def fleet(
    num_hosts: int, *, num_each: int = 1, has_codec: bool = True, cpus: str = ""
) -> Iterator[Fleet]:
    """Hosts behind the link, for the loaders of this process. num_each: workers of each; cpus: as
    taskset takes them."""
    what = ("-m", "stoker.remote.host.start") if has_codec else ("-c", RAW_HOST)
    words = [*(("taskset", "-c", cpus) if cpus else ()), sys.executable, *what]
    settings = Settings(cluster=f"processes:{num_hosts}x{num_each}", bind=HERE, quiet=True)
    more = {"versions": versions(), "script": None, "host": beyond(words)}
    made = Fleet(settings._asdict() | more, lambda text: print(text, file=sys.stderr))
    try:
        made.wait(lambda: made.num_hosts == num_hosts, Deadline(PATIENCE_S))
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def stoker_with(made: Fleet, *, has_local_share: bool = False) -> Iterator[None]:
    """Loaders of this process are stoker's.

    has_local_share: chains stay on this machine as its cores allow; else none does.
    """
    before = run.fleet, helpers.local_slots
    run.fleet = lambda: made
    if not has_local_share:
        helpers.local_slots = lambda num_cores, busy_cores: 0
    patches.install(Settings(quiet=True))
    try:
        yield
    finally:
        patches.restore()
        run.fleet, helpers.local_slots = before


def wait_away(iterator: object, num_cpus: int) -> None:
    """Until the hosts have the loader's job, and its chains go there."""
    driver = iterator._driver  # type: ignore[attr-defined]
    away = driver._helpers.away
    driver._helpers._fleet.wait(lambda: away.capacity == num_cpus, Deadline(PATIENCE_S))
    driver._hear_helpers()
