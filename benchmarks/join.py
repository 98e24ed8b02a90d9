"""How long until a cluster that is up makes batches: start of the command to a batch from its worker.

A Ray of two nodes on addresses of this machine, a head without CPUs and a worker of one, started
as docs/deploy says. As if they were two machines of one core, the head and the trainer are held to
the first core, the worker to the second. Then, several times, `stoker run --cluster HOST:PORT -- python joined.py`, in a
folder that Ray has not seen, so that it is shipped. Prints medians of away_s, to the first batch
that the worker made, and first_s, to the first batch at all; report.json must know of the former.
The first run is not counted: Ray's own first actor takes longer, and a machine's first host compiles.
Not a plain script: it runs one under stoker; there is one side only.
"""

import argparse
import contextlib
import json
import os
import secrets
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from one_side import print_line
from photos import photo_folder
from processes import descendants

HERE = Path(__file__).resolve().parent
DEPLOY = HERE.parent / "deploy" / "bare-hosts.sh"
HEAD, WORKER = "127.0.0.1", "127.0.0.2"
PATIENCE_S = 60.0


def free_port() -> int:
    with socket.create_server((HEAD, 0)) as server:
        return server.getsockname()[1]


def on(core: int | str) -> list[str]:
    return ["taskset", "-c", str(core)]


def node(core: int | str, words: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
    """A node of Ray that is up: the script's last words have come."""
    command = [*on(core), str(DEPLOY), *words]
    process = subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    seen = []
    for line in process.stdout:
        seen.append(line)
        if "block forever" in line:
            return process
    raise SystemExit("".join(seen))


@contextlib.contextmanager
def ray_of_two(
    here: int | str, elsewhere: int | str, num_cpus: int = 1
) -> Iterator[tuple[str, dict[str, str], list[int]]]:
    """Address, the environment of who uses it, and the pids that are the worker's node. All of it is
    gone at the end."""
    with tempfile.TemporaryDirectory(prefix="sj", ignore_cleanup_errors=True) as home:
        port = free_port()
        keep = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        keep.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed stoker is compiled
        env = keep | {
            "HOME": home,
            "STOKER_ENV": str(Path(sys.executable).parents[1]),
            "TEMP": f"{home}/r",
            "PORT": str(port),
            "CLIENT_PORT": str(free_port()),
        }
        nodes: list[subprocess.Popen[str]] = []
        try:
            nodes.append(node(here, ["head"], env | {"NODE_IP": HEAD}))
            join = ["join", f"{HEAD}:{port}"]
            nodes.append(node(elsewhere, join, env | {"NODE_IP": WORKER, "CPUS": str(num_cpus)}))
            token = f"{home}/.ray/auth_token"
            yield (
                join[1],
                keep | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": token},
                [nodes[1].pid],
            )
        finally:
            of_ray = [pid for process in nodes for pid in descendants(process.pid)]
            for process in reversed(nodes):
                process.terminate()
            for process in nodes:
                process.communicate(timeout=PATIENCE_S)
            for pid in of_ray:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)


def run_once(core: int, address: str, env: dict[str, str]) -> dict[str, float]:
    """What joined.py printed, in a copy of this folder with a file that there never was."""
    with tempfile.TemporaryDirectory() as folder:
        for file in HERE.glob("*.py"):
            shutil.copy(file, folder)
        Path(folder, "salt.py").write_text(f"# {secrets.token_hex()}\n")
        report = Path(folder, "report.json")
        prefix = [
            *on(core),
            sys.executable,
            "-m",
            "stoker",
            "run",
            "--quiet",
            f"--cluster={address}",
        ]
        prefix += [f"--report-json={report}", "--", sys.executable, f"{folder}/joined.py"]
        command = [*prefix, "--started", repr(time.time())]
        done = subprocess.run(command, env=env, cwd=folder, stdout=subprocess.PIPE, text=True)
        line = json.loads(done.stdout.splitlines()[-1])
        (loader,) = json.loads(report.read_text())["loaders"]
        if not line["away_s"] or not loader["num_away"]:
            raise SystemExit(f"no batch came from Ray: {line}, {loader}")
        return {**line, "num_batches": loader["num_batches"], "num_away": loader["num_away"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="counted, after one that is not")
    flags = parser.parse_args()
    photo_folder()
    here, elsewhere, *_ = sorted(os.sched_getaffinity(0))
    with ray_of_two(here, elsewhere) as (address, env, _):
        lines = [run_once(here, address, env) for _ in range(flags.rounds + 1)]
    medians = {key: statistics.median(line[key] for line in lines[1:]) for key in lines[0]}
    print_line({**medians, "uncounted_away_s": lines[0]["away_s"]})


if __name__ == "__main__":
    main()
