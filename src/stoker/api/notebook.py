"""`%load_ext stoker`: installs stoker into a notebook's kernel, and shows a summary below each cell
that took batches.

Promise: an error of ours is a line, never the cell's; a cell that iterated no loader shows nothing.
"""

from importlib import import_module
from typing import Any

from stoker import speak
from stoker.api import snapshot
from stoker.api.install import install, is_installed, uninstall
from stoker.clock import now_s

_cells: "Cells | None" = None


class Cells:
    """Compares the counts before and after each cell. shell: IPython's."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._before = snapshot.current()
        self._began_s = now_s()
        shell.events.register("pre_run_cell", self.begin)
        shell.events.register("post_run_cell", self.end)

    @speak.guarded
    def begin(self, info: Any) -> None:
        self._before, self._began_s = snapshot.current(), now_s()

    @speak.guarded
    def end(self, result: Any) -> None:
        found = snapshot.since(self._before, snapshot.current(), now_s() - self._began_s)
        if found["loaders"]:
            display: Any = import_module("IPython.display").display
            display(snapshot.frozen(found))

    def close(self) -> None:
        self._shell.events.unregister("pre_run_cell", self.begin)
        self._shell.events.unregister("post_run_cell", self.end)


def load(shell: Any) -> None:
    """Install stoker, unless it is, and show summaries of cells from now on."""
    global _cells
    if not is_installed():
        install({})
    if _cells is None:
        _cells = Cells(shell)


def unload(shell: Any) -> None:
    global _cells
    if _cells is not None:
        _cells.close()
        _cells = None
    uninstall()
