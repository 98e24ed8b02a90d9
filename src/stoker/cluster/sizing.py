"""How many slots this machine has for workers, how much memory, and what workers would gain.

Pure but for reading /sys and /proc: standard library only.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def usable_cores(cgroup: Path = CGROUP) -> int:
    """Cores that this process may use: affinity and cgroup quota, at least 1."""
    quota = cpu_quota(cgroup)
    cores = len(os.sched_getaffinity(0))
    return cores if quota is None else max(1, min(cores, int(quota + 0.5)))


def cpu_quota(cgroup: Path = CGROUP) -> float | None:
    """Cores that the cgroup grants (v2 cpu.max, v1 cpu.cfs_quota_us); None without a limit."""
    for limit, period in _quota_files(cgroup):
        if limit.isdecimal() and period.isdecimal() and int(period) > 0:
            return int(limit) / int(period)
    return None


def _quota_files(cgroup: Path) -> list[tuple[str, str]]:
    pairs = []
    v2 = _read(cgroup / "cpu.max").split()
    if len(v2) == 2:
        pairs.append((v2[0], v2[1]))
    v1 = cgroup / "cpu"
    pairs.append((_read(v1 / "cpu.cfs_quota_us").strip(), _read(v1 / "cpu.cfs_period_us").strip()))
    return pairs


def batch_s(fetch_s: float, step_s: float, num_workers: int, num_cores: int) -> float:
    """Seconds a batch if `num_workers` processes fetch while the training loop works.

    fetch_s: of one batch in one process; step_s: of the loop between two batches, on one core.
    """
    return max(step_s, fetch_s / num_workers, (fetch_s + step_s) / num_cores)


def gain(fetch_s: float, step_s: float, num_workers: int, num_cores: int) -> float:
    """How many times as fast the loop gets if others fetch, by `batch_s`."""
    return (fetch_s + step_s) / max(batch_s(fetch_s, step_s, num_workers, num_cores), 1e-9)


def workers_wanted(fetch_s: float, step_s: float, num_slots: int) -> int:
    """Processes that keep up with the loop; no more than there are slots."""
    return max(1, min(num_slots, math.ceil(fetch_s / max(step_s, 1e-9))))


def local_slots(num_cores: int, busy_cores: float | None) -> int:
    """Workers that this machine may have beside the training loop, while others could have them.

    busy_cores: what the loop itself keeps busy while it does not wait for batches; None: not yet
    known, one is assumed. A quarter of a core is left to share.
    """
    busy = 1.0 if busy_cores is None else busy_cores
    return max(0, math.floor(num_cores - busy + 0.25))


def machine_nbytes() -> int:
    """Memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_nbytes(cgroup: Path = CGROUP) -> int:
    """Memory that the processes of this machine, or container, may have in all."""
    return min([machine_nbytes(), *(limit for limit, _ in _memory_of(cgroup))])


def available_nbytes(cgroup: Path = CGROUP, meminfo: Path = Path("/proc/meminfo")) -> int:
    """Memory that they may still take, as the kernel estimates it. Source: proc(5), meminfo."""
    lines = (line.split() for line in _read(meminfo).splitlines())
    kib = [int(line[1]) for line in lines if line[0] == "MemAvailable:"]
    left = [max(0, limit - used) for limit, used in _memory_of(cgroup)]
    return min([kib[0] << 10 if kib else machine_nbytes(), *left])


def _memory_of(cgroup: Path) -> Iterator[tuple[int, int]]:
    """What a cgroup grants and what of that is used, but for files' pages that can go."""
    for limit, used, stat, cached in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        (
            "memory/memory.limit_in_bytes",
            "memory/memory.usage_in_bytes",
            "memory/memory.stat",
            "total_inactive_file",
        ),
    ):
        words = _read(cgroup / limit).strip(), _read(cgroup / used).strip()
        if words[0].isdecimal() and words[1].isdecimal():
            stats = dict(line.split() for line in _read(cgroup / stat).splitlines())
            yield int(words[0]), int(words[1]) - int(stats.get(cached, 0))


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except OSError:
        return ""
