"""Defines the protocol `Engine`, which runs hosts on a cluster's machines for the receiver.

One contract suite (tests/contract/) runs on every implementation.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, Required, TypedDict


class Settings(TypedDict, total=False):
    """Settings that a trainer sends its receiver first. workers: `N` or `MIN:MAX`; bind: an address of this
    machine; versions: that hosts must have; num_cores: this rank's share; host: the command that
    is a host; about: for `stoker status`; mounts_away: a MountsAway (storage/mounting)."""

    cluster: Required[str]
    workers: Required[str | None]
    bind: str | None
    no_tls: bool
    allow_mismatch: bool
    versions: dict[str, str]
    num_cores: int
    folder: str | None
    host: Sequence[str]
    about: dict[str, object]
    mounts_away: dict[str, Any]


class Way(TypedDict, total=False):
    """Tells a host the way to the trainer, and who it is. token: hex digits; ships_code: its
    working folder is a copy of the script's; is_bound: it ends with whoever starts it; num_cpus: that
    its machine has, of which it may be told to use fewer; cannot: why it is of no use, found where it is; note: for the user."""

    address: Required[str]
    port: Required[int]
    token: Required[str]
    certificate: Required[str]
    hash_seed: str | None
    name: str
    node: str
    ships_code: bool
    is_bound: bool
    num_cpus: int
    mounts_away: dict[str, Any]
    cannot: str
    note: str


Resize = Callable[[str, int], None]
"""Told the name of a host and how many workers of each job it may have."""


class Engine(Protocol):
    """Starts hosts (remote/host/start.py) on a cluster's machines, and restarts those that end.

    A host has as many workers of each job as its machine has CPUs for this run.
    settings: `cluster`; `workers`: None, for every CPU there is, `N` of them, or `MIN:MAX`;
    `host`, if given: what Python runs as a host.
    Owner: one thread, but for `want`; every call may wait, but for `want`. Whatever it started
    ends when this process does.
    """

    def address_of_trainer(self) -> str:
        """Return the address of the interface by which the cluster reaches this machine. Raises if
        there is no cluster."""

    def run(self, way: Way, tell: Callable[[str], None], resize: Resize) -> None:
        """Keep hosts running, each told `way` with its name and node. Never returns, nor raises.

        Names are unique among the hosts that live; one that is started again may keep its own.
        A host that ends without being told to is restarted, with backoff if it ends early.
        It is told by the end of its stdin: then it leaves with code 0, or is killed. Its code is
        UNREACHABLE (hosts.py) if nothing answers at `way`.
        tell: called with what the user should know, one line each;
        resize: called before a host is started and whenever it is to have another number of CPUs;
        with 0 just before it is ended because fewer are wanted: no other is given that name.
        Both are called by the thread that runs.
        Several runs share a cluster's CPUs: none keeps more than its share while another has less
        than its own and wants more; what is given back for that is told as well.
        """

    def want(self, num_cpus: int) -> None:
        """Set how many CPUs to have, within `MIN:MAX`; if the setting is another this does nothing.

        Called from any thread, also before `run`. Never waits: CPUs come when there is room for
        them. Until the first call there are MIN, and at least 1.
        """

    def publish(self, stats: dict[str, object]) -> None:
        """Set what `stoker status` shows of this run. From any thread; never waits."""


def make_engine(settings: Settings, tell: Callable[[str], None] = lambda text: None) -> Engine:
    """Make the engine that `--cluster` names. tell: as in `Engine.run`, but before code is sent."""
    if settings["cluster"].startswith("processes:"):
        from stoker.remote.engines.processes import Processes

        return Processes(settings)
    from stoker.remote.engines.ray import RayEngine

    return RayEngine(settings, tell)
