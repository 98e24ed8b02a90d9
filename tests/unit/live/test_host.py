"""What the machine has used, as /proc tells it."""

import pytest

from stoker.live.feed import Host
from stoker.live.host import HostReader


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
