"""What the machine has used, as /proc tells it."""

import subprocess
import sys

import pytest

from stoker.live.feed import Host
from stoker.live.host import HostReader, RunMemory


def test_cores_are_counted_between_two_reads(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 4000 kB\nMemFree: 1 kB\nMemAvailable: 1000 kB\n")
    (tmp_path / "stat").write_text("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1\n")
    reader = HostReader(tmp_path)
    reader.read()
    (tmp_path / "stat").write_text("cpu  150 0 150 780 120 0 0 0 0 0\n")
    assert reader.read() == Host(0.5, 3000 << 10, 4000 << 10)


def test_a_real_machine_has_some():
    host = HostReader().read()
    assert 0 < host.used_nbytes < host.all_nbytes
    assert 0 <= host.cpu_frac <= 1


@pytest.mark.parametrize("text", ["", "cpu x", "intr 1"])
def test_what_cannot_be_read_is_nothing(tmp_path, text):
    (tmp_path / "stat").write_text(text)
    assert HostReader(tmp_path).read() == Host()


def test_a_runs_memory_is_that_of_the_process_its_forks_and_what_they_start():
    """A process of 64 MB forks one that shares them, makes 32 MB of its own, leaves its parent, and starts a program."""
    code = (
        "import os, subprocess, sys, time; a = bytearray(os.urandom(64 << 20)); "
        "os.fork() and (print('x', flush=True), sys.stdin.read(), os._exit(0)); "
        "os.setsid(); b = bytearray(os.urandom(32 << 20)); "
        "p = subprocess.Popen([sys.executable, '-c', 'import os, sys; a = os.urandom(16 << 20); print(1, flush=True); sys.stdin.read()'], stdout=2); "
        "os.dup2(os.open(os.devnull, os.O_WRONLY), 2); p.wait()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr.readline() == b"1\n"
        own, others = RunMemory(process.pid).read()
        process.stdin.close()
    assert 32 << 20 < own < 64 << 20  # half of what it shares
    assert 80 << 20 < others < 140 << 20
    assert RunMemory(process.pid).read() == (0, 0)
