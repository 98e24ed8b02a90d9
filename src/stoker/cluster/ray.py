"""Hosts as Ray actors: one of one CPU for each slot of the cluster's other nodes.

The only import of ray. Membership, placement, restarts and shipping of the script's folder are
Ray's; what this file decides is how many actors a node gets (`plan`).
Promise: as `Engine`. The actors are not detached: they end with this process, and their hosts
with them. Owner: the engine's thread of the receiver.
"""

import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from stoker.cluster.hosts import Bounds
from stoker.cluster.processes import start_host

LOOK_EVERY_S = 1.0  # Ray tells nobody when nodes come
# Ray refuses working folders above 500 MiB; what is shipped is code, and data lies elsewhere.
FOLDER_LIMIT_NBYTES = 100 << 20
FILE_LIMIT_NBYTES = 1 << 20
MAX_FILES = 10_000
_NOT_SHIPPED = (".git", ".venv", "venv", "__pycache__", ".mypy_cache", ".pytest_cache", "wandb")


@ray.remote(num_cpus=1, max_restarts=-1)
class HostActor:
    """Keeps one host alive: its node's slot is the trainer's while it is."""

    def __init__(self, way: dict[str, Any], name: str) -> None:
        node = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        number = ray.get_runtime_context().get_actor_id() or ""
        self._process = start_host({**way, "name": f"{name}-{number[:6]}", "node": node})
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        """Ray starts the actor again when its process ends; so it ends with its host."""
        self._process.wait()
        os._exit(1)


class RayEngine:
    """address: `auto`, HOST:PORT or ray://HOST:PORT. Raises ConnectionError where nobody answers."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._address: str = settings["cluster"]
        self._bounds = Bounds.of(settings["workers"])
        self._num_wanted = self._bounds.first
        self._left_out: list[str] = []
        self._runtime_env = self._code(settings.get("script"))
        ray.init(
            address=self._address,
            log_to_driver=False,
            configure_logging=False,
            logging_level=logging.ERROR,
            runtime_env=self._runtime_env,
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

    def run(
        self, way: dict[str, Any], tell: Callable[[str], None], dismiss: Callable[[str], None]
    ) -> None:
        if self._left_out:
            tell(
                f"{len(self._left_out)} files beside the script are not shipped to the workers "
                f"({', '.join(self._left_out[:3])}, ...): more than {FILE_LIMIT_NBYTES >> 20} MiB "
                "each; workers read them where they have them under the same path"
            )
        actors: dict[str, list[Any]] = {}
        while True:
            nodes = self._nodes()
            wanted = plan(nodes, self._num_wanted)
            for node in [node for node in actors if node not in nodes]:
                del actors[node]
            for node, num_wanted in wanted.items():
                running = actors.setdefault(node, [])
                while len(running) < num_wanted:
                    place = NodeAffinitySchedulingStrategy(node, soft=False)
                    name = f"{nodes[node][0]}-{len(running)}"
                    options = HostActor.options(scheduling_strategy=place)  # type: ignore[attr-defined]
                    running.append(options.remote(way, name))
            threading.Event().wait(LOOK_EVERY_S)

    def _nodes(self) -> dict[str, tuple[str, int]]:
        """Address and CPUs of the nodes that live, but this machine's own: its cores are local."""
        client = self._address.startswith("ray://")
        ours = self.address_of_trainer() if client else ray.get_runtime_context().get_node_id()
        return {
            node["NodeID"]: (node["NodeManagerAddress"], int(node["Resources"].get("CPU", 0)))
            for node in ray.nodes()  # type: ignore[no-untyped-call]
            if node["Alive"] and ours not in (node["NodeID"], node["NodeManagerAddress"])
        }

    def _code(self, script: str | None) -> dict[str, Any]:
        """Ray's runtime_env with the script's folder, but for what is too large to be code."""
        if script is None:
            return {}
        folder = Path(script).parent
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
                self._left_out = [str(folder)]
                return {}
        excludes = [*_NOT_SHIPPED, *(f"/{name}" for name in self._left_out)]
        return {"working_dir": str(folder), "excludes": excludes}


def plan(nodes: Mapping[str, tuple[str, int]], limit: int | None) -> dict[str, int]:
    """Actors for each node: all its CPUs; below a limit as evenly as the CPUs allow.

    nodes: id -> address and CPUs.
    """
    wanted = dict.fromkeys(sorted(nodes), 0)
    total = sum(cpus for _, cpus in nodes.values())
    for _ in range(total if limit is None else min(limit, total)):
        free = [node for node in wanted if wanted[node] < nodes[node][1]]
        wanted[min(free, key=lambda node: wanted[node])] += 1
    return wanted
