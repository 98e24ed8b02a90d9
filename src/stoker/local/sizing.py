"""Computes how many workers and how much memory this machine can afford, and the speedup to expect.

Pure but for reading /sys and /proc: standard library only.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path

# Of a machine's free memory, for remembered samples; its ranks share it.
CACHE_FRAC_OF_FREE = 0.25
CGROUP = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")  # paths below that. Source: cgroups(7)


def usable_cores(cgroup: Path = CGROUP) -> int:
    """Count the cores that this process may use: affinity and cgroup quota, at least 1."""
    quota = cpu_quota(cgroup)
    cores = len(os.sched_getaffinity(0))
    return cores if quota is None else max(1, min(cores, int(quota + 0.5)))


def cpu_quota(cgroup: Path = CGROUP) -> float | None:
    """Return cores that the cgroup grants (v2 cpu.max, v1 cpu.cfs_quota_us); None if unlimited."""
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
    """Estimate seconds per batch if `num_workers` processes fetch while the training loop works.

    fetch_s: of one batch in one process; step_s: of the loop between two batches, on one core.
    """
    return max(step_s, fetch_s / num_workers, (fetch_s + step_s) / num_cores)


def gain(fetch_s: float, step_s: float, num_workers: int, num_cores: int) -> float:
    """Estimate how many times as fast the loop gets if workers fetch its batches, by `batch_s`."""
    return (fetch_s + step_s) / max(batch_s(fetch_s, step_s, num_workers, num_cores), 1e-9)


def workers_wanted(fetch_s: float, step_s: float, num_slots: int) -> int:
    """Return how many processes keep up with the loop; no more than there are slots."""
    return max(1, min(num_slots, math.ceil(fetch_s / max(step_s, 1e-9))))


def local_slots(num_cores: int, busy_cores: float | None) -> int:
    """Return how many workers to run beside the training loop, while other machines could run more.

    busy_cores: what the loop itself keeps busy while it does not wait for batches; None: not yet
    known, one is assumed. A quarter of a core is left to share.
    """
    busy = 1.0 if busy_cores is None else busy_cores
    return max(0, math.floor(num_cores - busy + 0.25))


def machine_nbytes() -> int:
    """Return the memory of this machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_nbytes(cgroup: Path = CGROUP, own: Path = OWN) -> int:
    """Return the bytes that the processes of this machine, or container, may have in all."""
    return min([machine_nbytes(), *(limit for limit, _ in _memory_of(cgroup, own))])


def available_nbytes(
    cgroup: Path = CGROUP, meminfo: Path = Path("/proc/meminfo"), own: Path = OWN
) -> int:
    """Return the bytes they may still take, by the kernel's estimate. Source: proc(5), meminfo."""
    lines = (line.split() for line in _read(meminfo).splitlines())
    kib = [int(line[1]) for line in lines if line[0] == "MemAvailable:"]
    left = [max(0, limit - used) for limit, used in _memory_of(cgroup, own)]
    return min([kib[0] << 10 if kib else machine_nbytes(), *left])


def private_nbytes(statm: Path = Path("/proc/self/statm")) -> int:
    """Return this process's private memory in bytes, which a fork shares until either writes to it.

    Source: proc(5), statm: resident pages, and those of them that are files' or shared memory's.
    """
    words = _read(statm).split()
    pages = int(words[1]) - int(words[2]) if len(words) > 2 else 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def why_no_second_copy() -> str:
    """Say why no fork of this process may run beside it; empty if its memory fits twice.

    A process that writes to all its memory while a fork lives has it twice.
    """
    own, left = private_nbytes(), available_nbytes()
    if own <= left:
        return ""
    return f"a second copy of its {own / 1e9:.1f} GB would not fit in the {left / 1e9:.1f} GB left"


def _memory_of(cgroup: Path, own: Path) -> Iterator[tuple[int, int]]:
    """Iterate each cgroup of this process: bytes it grants, and bytes used but for files' pages,
    which can go. Version 1's, then version 2's, each from the process's own up to the root."""
    for folder, limit, used, prefix in _memory_folders(cgroup, own):
        words = _read(folder / limit).strip(), _read(folder / used).strip()
        if words[0].isdecimal() and words[1].isdecimal():
            stats = dict(line.split() for line in _read(folder / "memory.stat").splitlines())
            cached = sum(int(stats.get(prefix + name, 0)) for name in _CACHED)
            yield int(words[0]), int(words[1]) - cached


_CACHED = ("inactive_file", "active_file")


def _memory_folders(cgroup: Path, own: Path) -> Iterator[tuple[Path, str, str, str]]:
    """Iterate cgroup folders and file names; inside a container only the root's may exist."""
    paths = {"": "/", "memory": "/"}  # by controllers; "" is the second version's
    for line in _read(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "" or "memory" in controllers.split(","):
            paths[controllers and "memory"] = path
    first = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"
    second = "memory.max", "memory.current", ""
    for folder in _up_to_root(cgroup / "memory", paths["memory"]):
        yield folder, *first
    for root in (cgroup, cgroup / "unified"):
        for folder in _up_to_root(root, paths[""]):
            yield folder, *second


def _up_to_root(root: Path, path: str) -> Iterator[Path]:
    folder = Path(path.strip("/"))
    yield root / folder
    for parent in folder.parents:
        yield root / parent


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except OSError:
        return ""
