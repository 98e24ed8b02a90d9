"""A real Ray of several nodes for tests: each on an address of this machine, with a port, a token and
a folder of its own. Nothing is asked of any other Ray here, and nothing is left.
"""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.needs import RAY

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
TIMEOUT_S = 120.0  # of anything here; Ray starts in 5 s, twice


@dataclass
class Nodes:
    """A Ray cluster."""

    home: Path
    port: int
    env: dict[str, str]
    running: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    has_head: bool = True

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def add(self, address: str, *words: str, **more: str) -> None:
        process = run_script("bare-hosts.sh", *words, env=self.env | {"NODE_IP": address} | more)
        self.running[address] = process
        wait_for_line(process, "block forever")

    def join(self, address: str, num_cpus: int = 1) -> None:
        self.add(address, "join", self.address, CPUS=str(num_cpus))

    def kill(self, address: str) -> None:
        """The node's raylet and whoever started it, with no chance to say goodbye."""
        process = self.running.pop(address)
        there = processes_with(f"--node_ip_address={address}")
        raylets = [pid for pid in processes_with(str(self.home)) if pid in there and is_raylet(pid)]
        assert raylets
        for pid in (process.pid, *raylets):
            os.kill(pid, signal.SIGKILL)
        process.communicate(timeout=TIMEOUT_S)

    @property
    def token(self) -> dict[str, str]:
        """Variables without which a driver is not let in."""
        file = self.home / ".ray/auth_token"
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(file)}

    def kill_head(self) -> None:
        """The process that knows the cluster, with no chance to say goodbye."""
        found = [pid for pid in processes_with(str(self.home)) if is_called(pid, "gcs_server")]
        (pid,) = found
        os.kill(pid, signal.SIGKILL)
        self.has_head = False

    def end(self) -> None:
        for process in reversed(self.running.values()):
            if self.has_head:
                process.terminate()
            else:  # they would wait for one; what they leave is found by its home
                process.kill()
        for process in self.running.values():
            process.communicate(timeout=TIMEOUT_S)


def is_raylet(pid: int) -> bool:
    return is_called(pid, "raylet")


def is_called(pid: int, name: str) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip() == name
    return False


@contextlib.contextmanager
def ray_of(*cpus: int, **environ: str) -> Iterator[Nodes]:
    """A head without CPUs, and a node with as many as each number says, from 127.0.0.2 on.

    environ: of all their processes.
    """
    port = free_port()
    home = Path(f"/tmp/stoker-ray-{port}")  # short, for Ray's sockets
    home.mkdir()
    made = Nodes(home, port, {})
    keep = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    made.env = (
        keep
        | {
            "HOME": str(home),
            "STOKER_ENV": str(RAY.parents[1]),
            "TEMP": str(home / "r"),
            "PORT": str(made.port),
            "CLIENT_PORT": str(free_port()),
            # Ray takes 16 s to call a node dead by default; with 1 s an answer on a crowded machine
            # it had called living ones so
            "RAY_health_check_initial_delay_ms": "500",
            "RAY_health_check_period_ms": "500",
            "RAY_health_check_timeout_ms": "4000",
            "RAY_health_check_failure_threshold": "3",
            # Ray's workers have 15: beside other tests, hosts had a tenth of a CPU between them
            "RAY_worker_niceness": "0",
        }
        | environ
    )
    try:
        made.add("127.0.0.1", "head")
        for number, num_cpus in enumerate(cpus):
            made.join(f"127.0.0.{number + 2}", num_cpus)
        yield made
    finally:
        made.end()
        left = processes_with(str(home))
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        subprocess.run(["rm", "-rf", str(home)], check=True)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def processes_with(what: str) -> list[int]:
    """Of all on this machine, those whose command line has these words."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and what in (entry / "cmdline").read_text():
                found.append(int(entry.name))
        except OSError:  # it has ended since
            continue
    return found


def wait_for_line(process: subprocess.Popen[str], words: str) -> None:
    """Reads the process's output until the words were said. Ray's own --block comes last."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if words in line:
            return
    raise AssertionError("".join(seen))


def run_script(script: str, *words: str, env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [DEPLOY / script, *words],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
