"""Reads what this machine has used of its cores and its memory. Source: proc(5)."""

from pathlib import Path

from stoker.live.feed import Host


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
