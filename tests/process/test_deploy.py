"""deploy/bare-hosts.sh and deploy/slurm.sh with a real Ray, on addresses of this machine.

Own ports, token and folder; nothing is asked of any other Ray here, and nothing is left.
Slurm's commands are stand-ins: sbatch starts the job at once, scancel ends it.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import wait_until_gone
from tests.needs import NEEDS_RAY
from tests.process.nodes import (
    TIMEOUT_S,
    free_port,
    processes_with,
    run_script,
    wait_for_line,
)

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("cluster"), NEEDS_RAY]

LOOK = """
import sys, time
import ray
ray.init(sys.argv[1], log_to_driver=False, logging_level="ERROR")
while sum(node["Alive"] for node in ray.nodes()) < 2:
    time.sleep(0.1)
print(*sorted(node["Resources"].get("CPU", 0) for node in ray.nodes()))
print(ray.get(ray.remote(num_cpus=1)(lambda: "worked").remote()))
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A short path, for Ray's sockets; at the end no process may have it in its command line."""
    folder = Path(f"/tmp/stoker-{os.getpid()}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    yield folder
    left = processes_with(str(folder))
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder)
    assert left == []


@pytest.fixture
def env(home: Path) -> dict[str, str]:
    (home / "bin").mkdir()
    for name in ("python", "ray"):
        (home / "bin" / name).write_text(
            f'#!/bin/sh\nexec {Path(sys.executable).with_name(name)} "$@"\n'
        )
        (home / "bin" / name).chmod(0o755)
    keep = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    return keep | {
        "HOME": str(home),
        "STOKER_ENV": str(Path(sys.executable).parents[1]),
        "TEMP": str(home / "r"),
        "NODE_IP": "127.0.0.1",
    }


def look(address: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LOOK, address]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=TIMEOUT_S)


def test_two_bare_hosts_are_one_cluster_and_end_without_a_trace(home, env):
    port = free_port()
    ports = {"PORT": str(port), "CLIENT_PORT": str(free_port())}
    head = run_script("bare-hosts.sh", "head", env=env | ports)
    started = [head]
    try:
        wait_for_line(head, "block forever")
        token = home / ".ray/auth_token"
        assert token.stat().st_mode & 0o777 == 0o600
        worker = run_script(
            "bare-hosts.sh",
            "join",
            f"127.0.0.1:{port}",
            env=env | {"NODE_IP": "127.0.0.2", "CPUS": "1"},
        )
        started.append(worker)
        wait_for_line(worker, "block forever")
        with_token = look(f"127.0.0.1:{port}", env | {"RAY_AUTH_MODE": "token"})
        assert with_token.stdout == "0 1.0\nworked\n", with_token.stderr
        token.write_text("0" * 64)
        once = {"RAY_NUM_REDIS_GET_RETRIES": "1"}  # else it knocks for a minute
        without = look(f"127.0.0.1:{port}", env | once | {"RAY_AUTH_MODE": "token"})
        assert without.returncode != 0 and without.stdout == ""
    finally:
        for process in reversed(started):
            process.terminate()
            process.communicate(timeout=TIMEOUT_S)


STANDINS = {
    "sbatch": """#!/bin/bash
printf '%s\\n' "$@" >"$HOME/sbatch.words"
SLURM_JOB_ID=$SLURM_JOB_ID-1 setsid bash -c "${@: -1}" >"$HOME/worker.log" 2>&1 &
echo $! >"$HOME/worker.pid"
echo 4242
""",
    "scancel": """#!/bin/bash
echo "$@" >"$HOME/scancel.words"
kill -- -"$(cat "$HOME/worker.pid")"
""",
    "stoker": """#!/bin/bash
echo "$@"
[ "${*: -1}" != forever ] || { echo waiting; exec sleep 1000; }
"$HOME/bin/python" - "$3" <<'END'
LOOK
END
""".replace("LOOK", LOOK),
}


@pytest.fixture
def slurm(home: Path, env: dict[str, str]) -> Iterator[dict[str, str]]:
    job = f"stoker-test-{os.getpid()}"
    for name, text in STANDINS.items():
        (home / "bin" / name).write_text(text)
        (home / "bin" / name).chmod(0o755)
    yield env | {
        "PATH": f"{home}/bin:{os.environ['PATH']}",
        "STOKER_ENV": str(home),
        "SLURM_JOB_ID": job,
        "NUM_NODES": "1",
        "NODE_CORES": "1",
    }
    worker = int((home / "worker.pid").read_text())  # no child of ours: Slurm's
    wait_until_gone(frozenset({worker}), TIMEOUT_S)
    assert not processes_with(f"/tmp/ray-{job}")
    assert not list(Path("/tmp").glob(f"ray-{job}*"))


def test_a_slurm_job_gets_its_workers_and_takes_them_along_when_it_ends(home, slurm):
    job = run_script("slurm.sh", "python", "train.py", env=slurm)
    said, _ = job.communicate(timeout=TIMEOUT_S)
    assert job.returncode == 0, said
    assert "--workers 0:1 -- python train.py" in said
    assert "0 1.0\nworked\n" in said
    words = (home / "sbatch.words").read_text().splitlines()
    assert {"--requeue", "--array=1-1", "--cpus-per-task=1"} <= set(words)
    assert (home / "scancel.words").read_text() == "4242\n"


def test_a_slurm_job_that_is_cancelled_cancels_its_workers(home, slurm):
    job = run_script("slurm.sh", "forever", env=slurm)
    wait_for_line(job, "waiting")
    job.terminate()
    job.communicate(timeout=TIMEOUT_S)
    assert job.returncode == 143
    assert (home / "scancel.words").read_text() == "4242\n"
