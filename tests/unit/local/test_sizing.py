"""Slots of a machine: its cores, and what the cgroup grants of them."""

import os

import pytest

from stoker.local.sizing import (
    available_nbytes,
    cpu_quota,
    machine_nbytes,
    memory_nbytes,
    private_nbytes,
    usable_cores,
)

CORES = len(os.sched_getaffinity(0))


def write(folder, **files):
    for name, text in files.items():
        file = folder / name.replace("__", "/").replace("_DOT_", ".")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return folder


def v2(folder, text):
    return write(folder, cpu_DOT_max=text)


def v1(folder, quota, period):
    return write(folder, cpu__cpu_DOT_cfs_quota_us=quota, cpu__cpu_DOT_cfs_period_us=period)


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("200000 100000\n", 2.0), ("150000 100000\n", 1.5), ("10000 100000\n", 0.1),
        ("max 100000\n", None), ("", None), ("200000\n", None), ("200000 0\n", None),
        ("nonsense here\n", None),
    ],
)  # fmt: skip
def test_the_quota_of_a_second_version_cgroup_is_read(tmp_path, text, cores):
    assert cpu_quota(v2(tmp_path, text)) == cores


@pytest.mark.parametrize(
    ("quota", "period", "cores"),
    [("300000\n", "100000\n", 3.0), ("-1\n", "100000\n", None), ("100000\n", "0\n", None)],
)
def test_the_quota_of_a_first_version_cgroup_is_read(tmp_path, quota, period, cores):
    assert cpu_quota(v1(tmp_path, quota, period)) == cores


def test_a_machine_without_cgroups_has_no_quota(tmp_path):
    assert cpu_quota(tmp_path / "nowhere") is None
    assert usable_cores(tmp_path / "nowhere") == CORES


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("100000 100000", 1), ("10000 100000", 1), ("140000 100000", 1),
        (f"{CORES}00000 100000", CORES), (f"{CORES + 7}00000 100000", CORES),
        ("max 100000", CORES),
    ],
)  # fmt: skip
def test_slots_are_cores_within_the_quota_and_at_least_one(tmp_path, text, cores):
    assert usable_cores(v2(tmp_path, text)) == cores


def test_the_affinity_bounds_the_slots(tmp_path):
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert usable_cores(tmp_path) == 1
    finally:
        os.sched_setaffinity(0, before)


def test_the_machines_memory_is_a_whole_number_of_pages():
    assert machine_nbytes() > 0 and machine_nbytes() % os.sysconf("SC_PAGE_SIZE") == 0


MEMINFO = "MemTotal: 900 kB\nMemFree: 100 kB\nMemAvailable: 500 kB\n"


def memory_v1(folder, limit, used, cached):
    return write(
        folder,
        memory__memory_DOT_limit_in_bytes=f"{limit}\n",
        memory__memory_DOT_usage_in_bytes=f"{used}\n",
        memory__memory_DOT_stat=f"cache 7\ntotal_inactive_file {cached}\n",
    )


def memory_v2(folder, limit, used, cached):
    return write(
        folder,
        memory_DOT_max=f"{limit}\n",
        memory_DOT_current=f"{used}\n",
        memory_DOT_stat=f"anon 7\ninactive_file {cached}\n",
    )


@pytest.mark.parametrize("cgroup", [memory_v1, memory_v2])
@pytest.mark.parametrize(
    ("limit", "used", "cached", "left"),
    [(400_000, 100_000, 0, 300_000), (400_000, 390_000, 90_000, 100_000), (9, 100, 0, 0),
     (1 << 62, 100_000, 0, 500 << 10)],
)  # fmt: skip
def test_what_is_left_of_the_memory_is_the_machines_within_the_cgroups(
    tmp_path, cgroup, limit, used, cached, left
):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(MEMINFO)
    folder = cgroup(tmp_path, limit, used, cached)
    assert available_nbytes(folder, meminfo) == left
    assert memory_nbytes(folder) == min(limit, machine_nbytes())


@pytest.mark.parametrize(
    ("lines", "own"),
    [
        ("4:memory:/jobs/mine\n0::/elsewhere\n", "memory/jobs/mine"),
        ("4:cpu,memory:/jobs/mine\n", "memory/jobs/mine"),
        ("0::/jobs/mine\n", "jobs/mine"),
        ("4:cpuset:/\n0::/jobs/mine\n", "unified/jobs/mine"),
    ],
)
@pytest.mark.parametrize("level", [0, 1])
def test_the_limit_of_every_cgroup_above_the_process_counts(tmp_path, lines, own, level):
    meminfo, listed, root = tmp_path / "meminfo", tmp_path / "own", tmp_path / "cgroup"
    meminfo.write_text(MEMINFO)
    listed.write_text(lines)
    folder = (root / own).parents[level - 1] if level else root / own
    folder.mkdir(parents=True)
    is_first = own.startswith("memory")
    limit, used = ("limit_in_bytes", "usage_in_bytes") if is_first else ("max", "current")
    (folder / f"memory.{limit}").write_text("1000\n")
    (folder / f"memory.{used}").write_text("900\n")
    prefix = "total_" if is_first else ""
    (folder / "memory.stat").write_text(f"{prefix}inactive_file 30\n{prefix}active_file 20\n")
    assert available_nbytes(root, meminfo, listed) == 150
    assert memory_nbytes(root, listed) == 1000


def test_memory_of_a_process_is_what_no_file_and_no_sharing_has():
    before = private_nbytes()
    block = bytearray(64 << 20)
    assert 63 << 20 < private_nbytes() - before < 80 << 20
    del block


@pytest.mark.parametrize("text", ["max", "", "nonsense"])
def test_a_cgroup_without_a_limit_leaves_the_machines_memory(tmp_path, text):
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(MEMINFO)
    assert available_nbytes(memory_v2(tmp_path, text, 5, 5), meminfo) == 500 << 10
    assert memory_nbytes(tmp_path) == machine_nbytes()
    assert available_nbytes(tmp_path / "nowhere", tmp_path / "nowhere") == machine_nbytes()
