"""Runs a host on each of a Ray cluster's nodes where this run has CPUs, but the trainer's own.

The only import of ray. Ray does membership, placement and shipping of the script's folder. Each
CPU is reserved by a placement group, which takes no process; Ray's autoscaler adds nodes for those
that wait for room. This file decides how many there are, and starts an actor on each node that has
some, which keeps the node's host alive.
Promise: as `Engine`. Nothing is detached: reservations and actors end with this process, and hosts
with their actors. Owner: the engine's thread; shared: `_num_wanted`, a word, and the event that
tells of it.
"""

import contextlib
import itertools
import logging
import os
import socket
import tempfile
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from stoker.clock import now_s
from stoker.remote.engines.engine import Resize, Settings, Way
from stoker.remote.engines.hosts import (
    UNREACHABLE,
    Backoff,
    Bounds,
    Claim,
    beyond,
    cpus_of,
    missing,
    to_give_back,
)
from stoker.remote.engines.processes import HOST, start_host
from stoker.travels import FILE_LIMIT_NBYTES, shipment

LOOK_EVERY_S = 1.0  # Ray tells nobody when nodes come
SOON_S = 0.05  # while reservations are new: Ray finds room within milliseconds, if there is any
# Before a run tells the others of itself: one more process there, while its first hosts begin.
TOLD_AFTER_S = 8.0
NAMESPACE = "stoker"  # of the runs' actors
_NODE = "ray.io/node-id"  # a label that Ray gives every node
_HEAD = "node:__internal_head__"  # a resource that Ray gives the head alone


@ray.remote(num_cpus=0, max_restarts=0)
class HostActor:
    """Keeps the host of a node alive; its CPUs are reserved apart from it."""

    def begin(self) -> None:
        """Return once the actor has begun."""

    def keep(self, way: Way, host: Sequence[str]) -> tuple[int, str]:
        """Run the host until it is given back or finds no trainer; returns its exit code and node.

        A host that dies is restarted, but not if the trainer is gone: Ray, which should end this
        actor then, may have lost its head.
        """
        node = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        code = str(Path.cwd()) if way["ships_code"] else None
        backoff = Backoff()
        while True:
            began_s = now_s()
            with start_host({**way, "node": node, "is_bound": True}, host, code) as process:
                if (ended := process.wait()) in (0, UNREACHABLE):
                    return ended, node
            threading.Event().wait(backoff.ended(now_s() - began_s, was_killed=ended < 0))


@ray.remote(num_cpus=0, max_restarts=-1)
class RunActor:
    """Holds what one run tells of itself to the others and to `stoker status`."""

    def __init__(self) -> None:
        self._said: dict[str, Any] = {}

    def say(self, said: dict[str, Any]) -> None:
        self._said = said

    def said(self) -> dict[str, Any]:
        return self._said


class _Runs:
    """The cluster's runs, as far as they have answered. Owner: the engine's thread."""

    def __init__(self) -> None:
        self.name = f"run-{uuid.uuid4()}"
        self.claims: dict[str, Claim] = {}  # of the others
        self._actor: Any = None
        self._asked: dict[str, Any] = {}  # answers that have not come

    def say(self, said: dict[str, Any], head: str) -> None:
        """Publish what this run says, in an actor on `head`. Ray's autoscaler takes no node with an
        actor as idle, so that on any other it would keep a node that the run has given back."""
        if self._actor is None:
            named = {"name": self.name, "namespace": NAMESPACE}
            options = RunActor.options(**named, **_on(head))  # type: ignore[attr-defined]
            self._actor = options.remote()
        self._actor.say.remote(said)

    def hear(self) -> None:
        """Take in the answers that have come, and ask again. Never waits for another run."""
        done = set()
        if self._asked:
            refs = list(self._asked.values())
            done = set(ray.wait(refs, num_returns=len(refs), timeout=0)[0])
        for name in [name for name, ref in self._asked.items() if ref in done]:
            said, _ = _outcome(self._asked.pop(name))
            if said:
                self.claims[name] = Claim(
                    said["num_wanted"], said["num_running"], tuple(said["barred"])
                )
        others = set(_runs()) - {self.name}
        for gone in set(self.claims) - others:
            del self.claims[gone]
        for name in others - set(self._asked):
            with contextlib.suppress(ValueError):  # it has ended meanwhile
                handle = ray.get_actor(name, namespace=NAMESPACE)
                self._asked[name] = handle.said.remote()


def _runs() -> list[str]:
    everybody = ray.util.list_named_actors(all_namespaces=True)
    return [each["name"] for each in everybody if each["namespace"] == NAMESPACE]


def look_at(address: str, timeout_s: float) -> dict[str, Any]:
    """Query a cluster's nodes and runs, for `stoker status`. Raises ConnectionError and Ray's own.

    Returns nodes: list of `node`, `id`, `cpus`, `alive`; runs: what each says of itself.
    """
    ray.init(
        address=address, log_to_driver=False, configure_logging=False, logging_level=logging.ERROR
    )
    nodes = [
        {
            "node": node["NodeManagerAddress"],
            "id": node["NodeID"],
            "cpus": int(node["Resources"].get("CPU", 0)),
            "alive": node["Alive"],
        }
        for node in ray.nodes()  # type: ignore[no-untyped-call]
    ]
    runs: list[dict[str, Any]] = []
    for name in _runs():
        try:
            actor: Any = ray.get_actor(name, namespace=NAMESPACE)
        except ValueError:  # it has ended meanwhile
            continue
        ref = actor.said.remote()
        if ray.wait([ref], timeout=timeout_s)[0]:
            runs.append(_outcome(ref)[0] or {})
    return {"nodes": nodes, "runs": [run for run in runs if run]}


@dataclass(slots=True)
class _Reservation:
    """A reserved CPU. node: the only one that it may be on; None: any; at: the id of its node, once
    Ray has found room."""

    node: str | None
    group: PlacementGroup
    asked_s: float
    at: str | None = None


@dataclass(slots=True)
class _Host:
    """The host of one node. actor: None between its end and the next one's start, which is at
    `due_s`; begun, kept: what its methods will return; has_begun: the former has."""

    name: str
    backoff: Backoff = field(default_factory=Backoff)
    num_cpus: int = 0
    actor: Any = None
    begun: Any = None
    kept: Any = None
    has_begun: bool = False
    started_s: float = 0.0
    due_s: float = 0.0


class _Nodes(NamedTuple):
    """The cluster's nodes. cpus: by id, of those that hosts may use; ours: this machine's, whose
    cores are local; head: the one that Ray's autoscaler never takes away."""

    cpus: dict[str, int]
    ours: list[str]
    head: str | None


class RayEngine:
    """Engine on Ray. settings: `cluster` is `auto`, HOST:PORT or ray://HOST:PORT; `folder`, if any,
    is shipped; the rest as `Engine`. Raises ConnectionError if nothing answers."""

    def __init__(self, settings: Settings, tell: Callable[[str], None]) -> None:
        self._host: Sequence[str] = settings.get("host", HOST)
        self._address: str = settings["cluster"]
        self._bounds = Bounds.of(settings["workers"])
        self._num_wanted = self._bounds.first
        self._woken = threading.Event()
        self._reserved: dict[int, _Reservation] = {}  # by number, the newer the larger
        self._hosts: dict[str, _Host] = {}  # by id of the node
        self._numbers = itertools.count()
        self._told: set[str] = set()
        self._ships_code = False
        self._dialled = ""
        self._stats: dict[str, object] = {}
        self._runs = _Runs()
        self._began_s = now_s()
        # What is not shipped is told here; Ray would tell the user of a list of its own.
        os.environ.setdefault("RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES", "")
        with tempfile.TemporaryDirectory(prefix="stoker-code-") as copies:  # until Ray has them
            ray.init(
                address=self._address,
                log_to_driver=False,
                configure_logging=False,
                logging_level=logging.ERROR,
                runtime_env=self._code(settings.get("folder"), copies, tell),
            )

    def address_of_trainer(self) -> str:
        if not self._address.startswith("ray://"):
            return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        host, _, port = self._address.removeprefix("ray://").rpartition(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:  # sends nothing
            sock.connect((host, int(port)))
            return str(sock.getsockname()[0])

    def want(self, num_cpus: int) -> None:
        self._num_wanted = self._bounds.clamp(num_cpus)
        self._woken.set()

    def publish(self, stats: dict[str, object]) -> None:
        self._stats = stats

    def run(self, way: Way, tell: Callable[[str], None], resize: Resize) -> None:
        self._dialled = f"{way['address']} port {way['port']}"
        while True:
            try:
                self._look(tell)
                nodes = self._nodes()
                cpus, num_wanted = self._may_use(nodes)
                self._give_back(cpus, num_wanted)
                self._reserve(nodes, cpus, num_wanted)
                self._serve(way, nodes, resize)
            except Exception as error:  # Ray's have no common base; its head may come back
                self._tell_once(tell, "Ray does not answer, and is asked again", error)
            self._woken.wait(self._wait_s())
            self._woken.clear()

    def _wait_s(self) -> float:
        """Return the time until the next look: short where reservations are new."""
        asked_s = max((p.asked_s for p in self._reserved.values() if p.at is None), default=0.0)
        return SOON_S if now_s() - asked_s < LOOK_EVERY_S else LOOK_EVERY_S

    def _tell_once(self, tell: Callable[[str], None], what: str, why: object) -> None:
        if what not in self._told:
            self._told.add(what)
            tell(f"{what}: {str(why).strip().partition(chr(10))[0]}")

    def _look(self, tell: Callable[[str], None]) -> None:
        """Poll which reservations have room, which actors have begun, and which have ended."""
        table = placement_group_table() if self._reserved else {}
        for cpu in self._reserved.values():
            group = table.get(cpu.group.id.hex(), {})
            has_room = group.get("state") == "CREATED"
            cpu.at = group["bundles_to_node_id"][0] if has_room else None
        living = [host for host in self._hosts.values() if host.actor is not None]
        refs = [ref for host in living for ref in (host.begun, host.kept)]
        done = set(ray.wait(refs, num_returns=len(refs), timeout=0)[0]) if refs else set()
        for host in living:
            if host.begun in done:
                host.has_begun = _outcome(host.begun)[1] is None
            if host.kept in done:
                self._tell_end(tell, host.has_begun, *_outcome(host.kept))
                now = now_s()
                host.due_s = now + host.backoff.ended(now - host.started_s)
                host.actor = host.begun = host.kept = None
                host.has_begun = False

    def _tell_end(
        self, tell: Callable[[str], None], has_begun: bool, kept: Any, error: Exception | None
    ) -> None:
        """Report an end that the user can do something about; the receiver reports lost hosts."""
        if error is None:
            code, node = kept
            if code == UNREACHABLE:
                self._tell_once(
                    tell, f"{node} cannot reach the trainer", f"nobody answers at {self._dialled}"
                )
        elif not isinstance(error, ray.exceptions.ActorUnschedulableError) and (
            not has_begun or isinstance(error, ray.exceptions.RayTaskError)
        ):
            self._tell_once(tell, "a worker cannot be started, and is tried again", error)

    def _may_use(self, nodes: _Nodes) -> tuple[Mapping[str, int], int | None]:
        """Return CPUs of each node, and CPUs in all: what this run wants and may have."""
        num_running = sum(cpu.at is not None for cpu in self._reserved.values())
        claim = Claim(self._num_wanted, num_running, tuple(nodes.ours))
        if nodes.head is not None and now_s() - self._began_s > TOLD_AFTER_S:
            said = {**self._stats, "num_wanted": claim.num_wanted, "num_running": num_running}
            self._runs.say({**said, "barred": list(claim.barred)}, nodes.head)
        self._runs.hear()
        claims = {**self._runs.claims, self._runs.name: claim}
        cpus = cpus_of(self._runs.name, nodes.cpus, claims)
        if cpus is nodes.cpus or self._num_wanted is None:
            return cpus, self._num_wanted
        return cpus, min(self._num_wanted, sum(cpus.values()))

    def _give_back(self, cpus: Mapping[str, int], num_wanted: int | None) -> None:
        """Give back CPUs that are too many."""
        if num_wanted is None:
            surplus = beyond(cpus, {n: cpu.node for n, cpu in self._reserved.items()})
        else:
            at = {n: cpu.at for n, cpu in self._reserved.items()}
            surplus = to_give_back(at, num_wanted)
        for number in surplus:
            self._drop(number)

    def _drop(self, number: int) -> None:
        remove_placement_group(self._reserved[number].group)
        del self._reserved[number]  # not before: Ray may not answer, and then is asked again

    def _reserve(self, nodes: _Nodes, cpus: Mapping[str, int], num_wanted: int | None) -> None:
        """Reserve the CPUs that are missing."""
        for number, cpu in tuple(self._reserved.items()):
            if cpu.node not in (None, *nodes.cpus):
                self._drop(number)
        at = {n: cpu.node for n, cpu in self._reserved.items()}
        for node in missing(cpus, at, num_wanted):
            group = placement_group([{"CPU": 1}], bundle_label_selector=_room(node, nodes.ours))
            self._reserved[next(self._numbers)] = _Reservation(node, group, now_s())

    def _serve(self, way: Way, nodes: _Nodes, resize: Resize) -> None:
        """Have a host on every node with CPUs, and on no other."""
        num_on = Counter(cpu.at for cpu in self._reserved.values() if cpu.at in nodes.cpus)
        for node in [node for node in self._hosts if node not in num_on]:
            host = self._hosts[node]
            if node in nodes.cpus:  # else it was lost
                resize(host.name, 0)
            if host.actor is not None:
                ray.kill(host.actor)
            del self._hosts[node]
        for node, num_cpus in num_on.items():
            assert node is not None
            if node not in self._hosts:
                self._hosts[node] = _Host(f"host {next(self._numbers)}")
            host = self._hosts[node]
            if host.num_cpus != num_cpus:
                host.num_cpus = num_cpus
                resize(host.name, num_cpus)
            if host.actor is None and host.due_s <= now_s():
                actor = HostActor.options(**_on(node)).remote()  # type: ignore[attr-defined]
                told: Way = {**way, "name": host.name, "num_cpus": nodes.cpus[node]}
                told["ships_code"] = self._ships_code
                host.begun, host.kept = actor.begin.remote(), actor.keep.remote(told, self._host)
                host.actor, host.started_s = actor, now_s()

    def _nodes(self) -> _Nodes:
        """List the cluster's living nodes."""
        client = self._address.startswith("ray://")
        own = self.address_of_trainer() if client else ray.get_runtime_context().get_node_id()
        cpus: dict[str, int] = {}
        ours: list[str] = []
        head = None
        for node in ray.nodes():  # type: ignore[no-untyped-call]
            if node["Alive"] and _HEAD in node["Resources"]:
                head = node["NodeID"]
            if own in (node["NodeID"], node["NodeManagerAddress"]):
                ours.append(node["NodeID"])
            elif node["Alive"]:
                cpus[node["NodeID"]] = int(node["Resources"].get("CPU", 0))
        return _Nodes(cpus, ours, head)

    def _code(self, folder: str | None, copies: str, tell: Callable[[str], None]) -> dict[str, Any]:
        """Return Ray's runtime_env with copies of what may be sent; tell the user first."""
        if folder is None:
            return {}
        shipped = shipment(folder, os.path.expanduser("~"))  # noqa: PTH111  # which raises nothing
        tell(shipped.said)
        if shipped.too_large:
            num = len(shipped.too_large)
            names = ", ".join(shipped.too_large[:3]) + (", ..." if num > 3 else "")
            tell(
                (f"{num} files beside the script are" if num > 1 else "1 file beside the script is")
                + f" not shipped to the workers ({names}): more than {FILE_LIMIT_NBYTES >> 20} MiB; "
                "workers read such a file where they have it under the same path"
            )
        self._ships_code = bool(shipped.files)
        if not shipped.files:
            return {}
        shipped.copy_to(copies)
        return {"working_dir": copies}


def _room(node: str | None, but: Sequence[str]) -> list[dict[str, str]]:
    """Return Ray's labels of where a CPU may be: on this node; None: anywhere but on those.

    Ray's autoscaler adds nodes for the latter alone.
    """
    if node is not None:
        return [{_NODE: node}]
    return [{_NODE: f"!in({', '.join(but)})"}] if but else []


def _on(node: str) -> dict[str, Any]:
    # Not soft: Ray 2.60 puts an actor of no CPUs anywhere then.
    return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


def _outcome(ref: Any) -> tuple[Any, Exception | None]:
    """Return what a finished call returned, and the error that it or Ray raised, if any."""
    try:
        return ray.get(ref), None
    except Exception as error:  # whatever it raised there, or Ray here
        return None, error
