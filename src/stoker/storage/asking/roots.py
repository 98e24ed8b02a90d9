"""Finds the folders that datasets read, so that machines which lack them can be shown them.

A root is a folder that a dataset names itself: in a list of its files, or in an attribute.
Promise: `/`, system folders, a home folder itself and what holds one are no roots; nothing is opened.
"""

import contextlib
import os
import pwd
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath
from typing import Any, NamedTuple

_NEVER = ("/etc", "/proc", "/sys", "/dev", "/run", "/boot", "/usr", "/bin", "/sbin", "/lib")
# Folders of others' things: what lies in them may be a root, they are none.
_SHARED = ("/tmp", "/home", "/var", "/mnt", "/media", "/opt", "/srv", "/root")
SECRET = {".ssh", ".aws", ".gnupg", ".config", ".kube", ".docker", ".azure", ".netrc", ".env"}
_MAX_DEPTH = 4  # of objects in objects
_MAX_LOOKED_AT = 1000  # elements of a list, spread over it
_NUM_SAMPLES = 8  # files by which another machine tells whether it has a root


class Root(NamedTuple):
    """A folder, and of some files in it path and bytes."""

    path: str
    samples: list[list[Any]]


def roots_of(datasets: Iterable[Any], never: Iterable[str] = ()) -> list[Root]:
    """Return the roots of these datasets, none inside another. never: folders that are none, with what is
    in them: mounts, and where code lies."""
    found: dict[str, list[str]] = {}
    for dataset in datasets:
        groups: list[list[str]] = []
        with contextlib.suppress(Exception):  # of classes of the script's
            groups.extend(_paths(dataset, 0, set()))
        for paths in groups:
            with contextlib.suppress(OSError, ValueError):
                files = [path for path in paths if os.path.isfile(path)]  # noqa: PTH113  # many
                folder = _common(files or [f"{path}/" for path in paths])
                if folder and _may_be_root(folder, (*_NEVER, *never)):
                    found.setdefault(folder, []).extend(files)
    outer = [
        path for path in found if not any(_is_in(path, other) for other in found if other != path)
    ]
    return [
        Root(path, _samples([f for other in found if _is_in(other, path) for f in found[other]]))
        for path in sorted(outer)
    ]


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _may_be_root(folder: str, never: Iterable[str]) -> bool:
    homes = {os.path.expanduser("~"), *(each.pw_dir for each in pwd.getpwall())}  # noqa: PTH111
    return (
        folder not in ("/", *_SHARED)
        and not any(_is_in(home, folder) for home in homes if home != "/")
        and not SECRET & {*folder.split("/"), *os.listdir(folder)}  # noqa: PTH208
        and not any(_is_in(folder, each) or _is_in(each, folder) for each in never)
    )


def _paths(value: Any, depth: int, seen: set[int]) -> Iterator[list[str]]:
    """Iterate groups of absolute paths that a dataset's attributes name."""
    if depth > _MAX_DEPTH or id(value) in seen:
        return
    seen.add(id(value))
    for own in tuple(getattr(value, "__dict__", {}).values()):
        if type(own).__module__.partition(".")[0] in ("numpy", "h5py"):
            mapped = getattr(own, "filename", None)  # of np.memmap, h5py.File
            own = mapped if isinstance(mapped, (str, PurePath)) else own
        if isinstance(own, (str, PurePath)):
            if str(own).startswith("/"):
                yield [str(own)]
        elif isinstance(own, (list, tuple)) or type(own).__module__ == "numpy":
            yield from _of_list(own, depth, seen)
        elif hasattr(type(own), "__getitem__") and not isinstance(own, (dict, bytes)):
            yield from _paths(own, depth + 1, seen)


def _of_list(values: Any, depth: int, seen: set[int]) -> Iterator[list[str]]:
    with contextlib.suppress(Exception):  # of a class of the script's
        num = len(values)
        looked_at = [values[k] for k in range(0, num, max(1, num // _MAX_LOOKED_AT))]
        texts = [text for each in looked_at for text in _texts(each)]
        if texts:
            yield texts
        elif num <= 64:  # datasets in a dataset
            for each in looked_at:
                yield from _paths(each, depth + 1, seen)


def _texts(element: Any) -> list[str]:
    if isinstance(element, dict):
        element = tuple(element.values())
    parts = element if isinstance(element, (tuple, list)) else (element,)
    return [
        str(each)
        for each in parts
        if isinstance(each, (str, PurePath)) and str(each).startswith("/")
    ]


def _common(paths: list[str]) -> str:
    """Return the folder that holds all of these that exist; empty if there is none."""
    there = [os.path.normpath(path) for path in paths if os.path.exists(path)]  # noqa: PTH110
    if not there:
        return ""
    common = os.path.commonpath(there)
    return common if os.path.isdir(common) else os.path.dirname(common)  # noqa: PTH112, PTH120


def _samples(files: list[str]) -> list[list[Any]]:
    found = []
    for path in files[:: max(1, len(files) // _NUM_SAMPLES)][:_NUM_SAMPLES]:
        with contextlib.suppress(OSError):
            told = Path(path).stat()
            found.append([path, told.st_size])
    return found


def is_here(root: Root) -> bool:
    """Whether this machine has a root: the folder and the files by which it is told."""
    for path, nbytes in root.samples:
        try:
            if Path(path).stat().st_size != nbytes:
                return False
        except OSError:
            return False
    return Path(root.path).is_dir()
