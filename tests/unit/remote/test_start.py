"""A host that has not imported torch yet, which takes seconds, ends with whoever started it."""

import json
import os
import select
import subprocess
import sys

import pytest

from stoker.remote.engines.processes import HOST

PATIENCE_S = 60.0
WAY = {"address": "127.0.0.1", "port": 9, "token": "", "certificate": "", "is_bound": True}
ENGINE = f"""
import os, sys
from stoker.remote.engines.processes import start_host

os.environ["PYTHONPATH"] = sys.argv[1]
host = start_host({WAY})
print(host.pid, flush=True)
host.wait()
"""


@pytest.fixture
def torch_that_tells(tmp_path):
    """A folder with a torch that tells when it is imported, and then takes for ever."""
    os.mkfifo(tmp_path / "imported")
    (tmp_path / "torch.py").write_text(
        f"import signal; open({str(tmp_path / 'imported')!r}, 'w').close(); signal.pause()"
    )
    return tmp_path


def test_an_engine_that_is_killed_meanwhile_takes_it_along(torch_that_tells):
    command = [sys.executable, "-c", ENGINE, torch_that_tells]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as engine:
        host = os.pidfd_open(int(engine.stdout.readline()))
        (torch_that_tells / "imported").read_text()  # it does now
        engine.kill()
    has_ended, _, _ = select.select([host], [], [], PATIENCE_S)
    os.close(host)
    assert has_ended


@pytest.mark.parametrize("said", [b"", json.dumps(WAY).encode() + b"\n"])
def test_an_engine_that_has_ended_before_is_seen(torch_that_tells, said):
    environ = os.environ | {"PYTHONPATH": str(torch_that_tells)}
    ran = subprocess.run(
        [sys.executable, *HOST], input=said, env=environ, capture_output=True, timeout=PATIENCE_S
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
