"""Makes a scratch folder that looks like another one, with links in place of copies.

Folders are made anew, files are links: what the script newly writes, replaces or deletes stays in
the scratch. A file that it opens for writing in place is the real one: `changed` tells.
Hidden folders, folders of more than MAX_ENTRIES, and all beyond MAX_LINKS are links themselves.
The folders above are there too, so that `../data` leads where it did; there everything is a link.
"""

import shutil
import stat
from collections import deque
from contextlib import suppress
from itertools import islice
from pathlib import Path

MAX_ENTRIES = 1000  # of one folder: such a one holds samples
MAX_LINKS = 10_000  # 0.2 s

Stamp = tuple[int, int]  # size in bytes, time of the last change in ns


class Sandbox:
    """A look-alike of the folder `real`, below `scratch`; made and removed as often as wanted."""

    def __init__(self, real: Path, scratch: Path) -> None:
        self._real = real
        self._scratch = scratch
        self._stamps: dict[Path, Stamp] = {}
        self.path = self._inside(real)

    def make(self) -> None:
        """Make a fresh one in place of the last."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        for folder in reversed(self._real.parents):
            self._make_above(folder)
        num_left = MAX_LINKS
        todo = deque([self._real])
        while todo:
            folder = todo.popleft()
            self._inside(folder).mkdir()
            for entry in sorted(folder.iterdir()):
                num_inside = _num_entries(entry)
                num_left -= 1
                if num_inside is not None and num_inside <= min(MAX_ENTRIES, num_left):
                    num_left -= num_inside
                    todo.append(entry)
                else:
                    self._link(entry)

    def changed(self) -> list[str]:
        """Return the real files, by path in the folder, that changed since they were linked."""
        return [
            str(file.relative_to(self._real))
            for file, stamp in self._stamps.items()
            if _stamp(file) != stamp
        ]

    def _make_above(self, folder: Path) -> None:
        self._inside(folder).mkdir(parents=True)
        with suppress(OSError):  # it may be passed through, not be read
            for entry in islice(folder.iterdir(), MAX_LINKS):
                if entry != self._real and entry not in self._real.parents:
                    self._inside(entry).symlink_to(entry)

    def _link(self, file: Path) -> None:
        self._inside(file).symlink_to(file)
        stamp = _stamp(file)
        if stamp is not None:
            self._stamps.setdefault(file, stamp)

    def _inside(self, real: Path) -> Path:
        return self._scratch / real.relative_to("/")


def _num_entries(entry: Path) -> int | None:
    """Return the number of entries of a folder that may be made anew; None for all else."""
    if entry.name.startswith(".") or entry.is_symlink() or not entry.is_dir():
        return None
    try:
        return sum(1 for _ in entry.iterdir())
    except OSError:  # not ours to look into
        return None


def _stamp(file: Path) -> Stamp | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None
