"""Hosts as Ray actors, of one CPU each, on the cluster's nodes but the trainer's own.

The only import of ray. Membership, placement and shipping of the script's folder are Ray's; an actor
keeps its host alive, and this file says how many actors there are. Those of `N` and `MIN:MAX` go
wherever there is room: without any they wait at Ray, whose autoscaler sees them and brings nodes.
Promise: as `Engine`. The actors are not detached: they end with this process, and their hosts
with them. Owner: the engine's thread; shared: `_num_wanted`, a word, and the event that tells of it.
"""

import itertools
import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from stoker.clock import now_s
from stoker.cluster.hosts import UNREACHABLE, Bounds, Brake, missing, to_give_back
from stoker.cluster.processes import HOST, start_host

LOOK_EVERY_S = 1.0  # Ray tells nobody when nodes come
# Ray refuses working folders above 500 MiB; what is shipped is code, and data lies elsewhere.
FOLDER_LIMIT_NBYTES = 100 << 20
FILE_LIMIT_NBYTES = 1 << 20
MAX_FILES = 10_000
_NOT_SHIPPED = (".git", ".venv", "venv", "__pycache__", ".mypy_cache", ".pytest_cache", "wandb")
_NODE = "ray.io/node-id"  # a label that Ray gives every node


@ray.remote(num_cpus=1, max_restarts=0)
class HostActor:
    """Keeps one host alive: its node's slot is the trainer's while it is."""

    def where(self) -> str:
        """The id of its node."""
        return str(ray.get_runtime_context().get_node_id())

    def keep(self, way: dict[str, Any], host: Sequence[str]) -> tuple[int, str]:
        """Returns when the host was given back, or finds no trainer: with its code, and its node.

        One that dies is started again. Not where the trainer is gone, for Ray, which should end
        this actor then, may have lost its head.
        """
        node = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        brake = Brake()
        while True:
            began_s = now_s()
            with start_host({**way, "node": node, "is_bound": True}, host) as process:
                if (code := process.wait()) in (0, UNREACHABLE):
                    return code, node
            threading.Event().wait(brake.ended(now_s() - began_s))


@dataclass(slots=True)
class _Place:
    """One host's. node: the only one that it may be on; None: any.

    actor: None between its end and the next one's start, which is at `due_s`; where, kept: of its
    methods; at: where it is, once it is known.
    """

    node: str | None
    brake: Brake = field(default_factory=Brake)
    actor: Any = None
    where: Any = None
    kept: Any = None
    at: str | None = None
    started_s: float = 0.0
    due_s: float = 0.0
    is_dismissed: bool = False


class _Nodes(NamedTuple):
    """cpus: by id, of those that hosts may use; ours: this machine's, whose cores are local."""

    cpus: dict[str, int]
    ours: list[str]


class RayEngine:
    """settings: `cluster` is `auto`, HOST:PORT or ray://HOST:PORT; `folder`, if any, is shipped; the
    rest as `Engine`. Raises ConnectionError where nobody answers."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._host: Sequence[str] = settings.get("host", HOST)
        self._address: str = settings["cluster"]
        self._bounds = Bounds.of(settings["workers"])
        self._num_wanted = self._bounds.first
        self._woken = threading.Event()
        self._places: dict[int, _Place] = {}
        self._numbers = itertools.count()
        self._told: set[str] = set()
        self._left_out: list[str] = []
        self._dialled = ""
        ray.init(
            address=self._address,
            log_to_driver=False,
            configure_logging=False,
            logging_level=logging.ERROR,
            runtime_env=self._code(settings.get("folder")),
        )

    def address_of_trainer(self) -> str:
        if not self._address.startswith("ray://"):
            return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        host, _, port = self._address.removeprefix("ray://").rpartition(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:  # sends nothing
            sock.connect((host, int(port)))
            return str(sock.getsockname()[0])

    def want(self, num_hosts: int) -> None:
        self._num_wanted = self._bounds.clamp(num_hosts)
        self._woken.set()

    def run(
        self, way: dict[str, Any], tell: Callable[[str], None], dismiss: Callable[[str], None]
    ) -> None:
        self._dialled = f"{way['address']} port {way['port']}"
        if self._left_out:
            tell(
                f"{len(self._left_out)} files beside the script are not shipped to the workers "
                f"({', '.join(self._left_out[:3])}, ...): more than {FILE_LIMIT_NBYTES >> 20} MiB "
                "each; workers read them where they have them under the same path"
            )
        while True:
            try:
                self._look(tell)
                self._give_back(dismiss)
                self._start(way)
            except Exception as error:  # Ray's have no common base; its head may come back
                self._tell_once(tell, "Ray does not answer, and is asked again", error)
            self._woken.wait(LOOK_EVERY_S)
            self._woken.clear()

    def _tell_once(self, tell: Callable[[str], None], what: str, why: object) -> None:
        if what not in self._told:
            self._told.add(what)
            tell(f"{what}: {str(why).strip().partition(chr(10))[0]}")

    def _look(self, tell: Callable[[str], None]) -> None:
        """Which actors have begun, and which have ended."""
        living = {n: place for n, place in self._places.items() if place.actor is not None}
        refs = [ref for place in living.values() for ref in (place.where, place.kept)]
        done = set(ray.wait(refs, num_returns=len(refs), timeout=0)[0]) if refs else set()
        for number, place in living.items():
            if place.where in done and place.at is None:
                place.at = _outcome(place.where)[0]
            if place.kept in done:
                self._tell_end(tell, place.at, *_outcome(place.kept))
                self._ended(number, place)

    def _tell_end(
        self, tell: Callable[[str], None], at: str | None, kept: Any, error: Exception | None
    ) -> None:
        """What the user can do something about; the receiver tells of hosts that are lost."""
        if error is None:
            code, node = kept
            if code == UNREACHABLE:
                self._tell_once(
                    tell, f"{node} cannot reach the trainer", f"nobody answers at {self._dialled}"
                )
        elif not isinstance(error, ray.exceptions.ActorUnschedulableError) and (
            at is None or isinstance(error, ray.exceptions.RayTaskError)
        ):
            self._tell_once(tell, "a worker cannot be started, and is tried again", error)

    def _ended(self, number: int, place: _Place) -> None:
        if place.is_dismissed:
            del self._places[number]
            return
        now = now_s()
        place.due_s = now + place.brake.ended(now - place.started_s)
        place.actor = place.where = place.kept = place.at = None

    def _give_back(self, dismiss: Callable[[str], None]) -> None:
        if self._num_wanted is None:
            return
        at = {n: place.at for n, place in self._places.items()}
        for number in to_give_back(at, self._num_wanted):
            place = self._places[number]
            if place.actor is not None:
                if not place.is_dismissed:
                    place.is_dismissed = True
                    dismiss(_name(number))
                ray.kill(place.actor)
            del self._places[number]

    def _start(self, way: dict[str, Any]) -> None:
        """Actors for the places that are missing, and for those that are due again."""
        nodes = self._nodes()
        for number, place in tuple(self._places.items()):
            if place.actor is None and place.node not in (None, *nodes.cpus):
                del self._places[number]
        at = {n: place.node for n, place in self._places.items()}
        for node in missing(nodes.cpus, at, self._num_wanted):
            self._places[next(self._numbers)] = _Place(node)
        for number, place in self._places.items():
            if place.actor is None and place.due_s <= now_s():
                options = HostActor.options(**_room(place.node, nodes.ours))  # type: ignore[attr-defined]
                actor = options.remote()
                where = actor.where.remote()
                kept = actor.keep.remote({**way, "name": _name(number)}, self._host)
                place.actor, place.where, place.kept = actor, where, kept
                place.started_s = now_s()

    def _nodes(self) -> _Nodes:
        """Those that live."""
        client = self._address.startswith("ray://")
        own = self.address_of_trainer() if client else ray.get_runtime_context().get_node_id()
        found = _Nodes({}, [])
        for node in ray.nodes():  # type: ignore[no-untyped-call]
            if own in (node["NodeID"], node["NodeManagerAddress"]):
                found.ours.append(node["NodeID"])
            elif node["Alive"]:
                found.cpus[node["NodeID"]] = int(node["Resources"].get("CPU", 0))
        return found

    def _code(self, folder: str | None) -> dict[str, Any]:
        """Ray's runtime_env with this folder, but for what is too large to be code."""
        if folder is None:
            return {}
        nbytes = num_files = 0
        for path, folders, files in os.walk(folder):
            folders[:] = [name for name in folders if name not in _NOT_SHIPPED]
            for name in files:
                file = Path(path, name)
                size = file.stat().st_size if file.is_file() else 0
                if size > FILE_LIMIT_NBYTES:
                    self._left_out.append(str(file.relative_to(folder)))
                else:
                    nbytes, num_files = nbytes + size, num_files + 1
            if nbytes > FOLDER_LIMIT_NBYTES or num_files > MAX_FILES:
                self._left_out = [folder]
                return {}
        excludes = [*_NOT_SHIPPED, *(f"/{name}" for name in self._left_out)]
        return {"working_dir": folder, "excludes": excludes}


def _name(number: int) -> str:
    return f"worker {number}"


def _room(node: str | None, but: Sequence[str]) -> dict[str, Any]:
    """Where Ray may put an actor: on this node; None: wherever there is room, but on those.

    Ray's autoscaler brings nodes for the latter alone.
    """
    if node is not None:
        return {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}
    return {"label_selector": {_NODE: f"!in({', '.join(but)})"}} if but else {}


def _outcome(ref: Any) -> tuple[Any, Exception | None]:
    """Of a call that is done: what it returned, or why it did not."""
    try:
        return ray.get(ref), None
    except Exception as error:  # whatever it raised there, or Ray here
        return None, error
