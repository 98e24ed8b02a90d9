"""Reads what this machine has used of its cores and its memory, and of that a run's processes. Source: proc(5)."""

import contextlib
from pathlib import Path

from stoker.clock import now_s
from stoker.live.feed import Host

READ_FRAC = 0.01  # of the time, for reading processes' memory: a large one's takes milliseconds
_PPID, _STACK = 1, 25  # in /proc/PID/stat, behind the name: fields 4 and 28


class HostReader:
    """Reads them again and again. root: where /proc is."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = root
        self._last = (0, 0)  # time at work, and all time, of all cores
        self.read()

    def read(self) -> Host:
        """Return what was used since the last call; of what cannot be read, nothing."""
        try:
            times = [int(word) for word in self._line("stat", "cpu ").split()[1:9]]
            numbers = [
                self._line("meminfo", name).split()[1] for name in ("MemTotal", "MemAvailable")
            ]
        except (OSError, ValueError, IndexError):
            return Host()
        at_work = sum(times) - times[3] - times[4]  # idle, waiting for a disk
        new = at_work - self._last[0], sum(times) - self._last[1]
        self._last = at_work, sum(times)
        total, free = (int(number) << 10 for number in numbers)
        return Host(new[0] / new[1] if new[1] > 0 else 0.0, total - free, total)

    def _line(self, name: str, begin: str) -> str:
        lines = (self._root / name).read_text().splitlines()
        return next((line for line in lines if line.startswith(begin)), "")


class RunMemory:
    """Reads the memory of a run's processes, of which pages that several share count once. pid: of the training process.

    Its forks begin their stack where it does, which is anywhere for each program that is started: so a worker is known
    whose parent is not the training process. Of others (spawned workers, what workers start) the parents are known.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._due_s = 0.0
        self._last = (0, 0)
        self.others_nbytes = (0, 0)  # at the first look that saw others, and the most

    def read(self) -> tuple[int, int]:
        """Return bytes of the training process, and of all others; as they were a while ago, where reading takes long."""
        began_s = now_s()
        if began_s >= self._due_s:
            found = {pid: _nbytes_of(pid) for pid in self._pids()}
            own = found.pop(self._pid, 0)
            self._last = _, others = own, sum(found.values())
            first, most = self.others_nbytes
            self.others_nbytes = first or others, max(most, others)
            self._due_s = began_s + (now_s() - began_s) / READ_FRAC
        return self._last

    def _pids(self) -> set[int]:
        stats: dict[int, list[bytes]] = {}
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):  # it has ended
                if folder.name.isdecimal():
                    text = (folder / "stat").read_bytes().rpartition(b")")[2]
                    stats[int(folder.name)] = text.split()
        if self._pid not in stats:
            return set()
        stack, children = stats[self._pid][_STACK], dict[int, list[int]]()
        for pid, told in stats.items():
            children.setdefault(int(told[_PPID]), []).append(pid)
        is_told = stack != b"0"  # else the kernel keeps it from us, as that of its own threads
        new = [pid for pid, told in stats.items() if is_told and told[_STACK] == stack] or [
            self._pid
        ]
        found: set[int] = set()
        while new:
            pid = new.pop()
            if pid not in found:
                found.add(pid)
                new += children.get(pid, ())
        return found


def _nbytes_of(pid: int) -> int:
    """Return a process's memory, and of pages that it shares its part; 0 if it cannot be read."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)
