"""Tells what a sample costs by function, from what a profiler has counted. Pure.

A function of the script's, a dataset's `__getitem__` and whatever only calls a list of transforms are opened: their
parts are told, as are the parts of those. Any other function is told with all that it calls.
Of a function that several call, each caller is charged for its own calls; what is inside them is shared out by time
(as gprof does; Graham, Kessler, McKusick 1982).
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType
from typing import Protocol

# Of installed code: what hands a sample on to parts that have names of their own.
_OPENED = (
    "__getitem__",
    "__getitems__",
    "_call_impl",
    "_wrapped_call_impl",
    "default_loader",
    "pil_loader",
)
_OPENED_CLASSES = ("Compose.", "Sequential.", "ComposeV2.")


class Call(Protocol):
    """Says what one function has called: see cProfile.Profile.getstats."""

    @property
    def code(self) -> CodeType | str: ...
    @property
    def totaltime(self) -> float: ...
    @property
    def inlinetime(self) -> float: ...


class Entry(Call, Protocol):
    @property
    def calls(self) -> "Iterable[Call] | None": ...


def costs_by_function(
    entries: Iterable[Entry], roots: set[CodeType], is_installed: Callable[[str], bool]
) -> dict[str, float]:
    """Return the seconds of functions, by name, that were called by those of `roots`. is_installed: tells of a file that
    it is not the script's."""
    known = {entry.code: entry for entry in entries}
    found: dict[str, float] = {}

    def add(name: str, seconds: float) -> None:
        found[name] = found.get(name, 0.0) + seconds

    def open_(entry: Entry, share: float, path: tuple[object, ...]) -> None:
        path = (*path, entry.code)
        add(name_of(entry.code), share * entry.inlinetime)
        for call in entry.calls or ():
            if call.code in path:  # it calls itself: its own time holds all of its calls'
                continue
            inner, seconds = known.get(call.code), share * call.totaltime
            if inner is None or not inner.totaltime or not is_opened(call.code, is_installed):
                add(name_of(call.code), seconds)
            else:
                open_(inner, seconds / inner.totaltime, path)

    for code in roots:
        if code in known:
            open_(known[code], 1.0, ())
    return {name: seconds for name, seconds in found.items() if seconds > 0}


def is_opened(code: CodeType | str, is_installed: Callable[[str], bool]) -> bool:
    """Whether a function is told by its parts."""
    if isinstance(code, str):
        return False
    if not is_installed(code.co_filename):
        return True
    return code.co_name in _OPENED or code.co_qualname.startswith(_OPENED_CLASSES)


def name_of(code: CodeType | str) -> str:
    """Return a function's name as people know it: `Normalize.forward (torchvision)`, `__getitem__ (data.py:12)`."""
    if isinstance(
        code, str
    ):  # <method 'read' of '_io.BufferedReader' objects>, <built-in method torch.stack>
        words = code.strip("<>").replace("'", "").split()
        if words[:1] == ["method"] and "of" in words:
            return f"{words[words.index('of') + 1].rpartition('.')[2]}.{words[1]}"
        return words[-1]
    file = Path(code.co_filename)
    name = code.co_qualname.replace("<locals>.", "")
    package = _package_of(file)
    return f"{name} ({package})" if package else f"{name} ({file.name}:{code.co_firstlineno})"


def _package_of(file: Path) -> str:
    parts = file.parts
    for sites in ("site-packages", "dist-packages"):
        if sites in parts:
            return parts[parts.index(sites) + 1].removesuffix(".py")
    return ""
