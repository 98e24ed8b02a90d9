"""Of which paths a computation asks what lies there, and whether that is still so.

A sample may depend on whether a file is there: then so does what is kept of it, also where there was
nothing. `os.stat` and `os.lstat` are others meanwhile, by which os.path and pathlib ask.

Promise: what was asked in a way that cannot be asked again, or may have changed since, has no identity.
A folder is known by where it lies, and not by its times.
Owner: a worker's main thread.
"""

import functools
import os
import stat
from collections.abc import Callable, Sequence
from typing import Any

from stoker.memory.watch.files import Identity, absolute, identity_of, is_settled

_BY_LINK = {"stat": True, "lstat": False}  # of os: whether it tells where a link leads
_FAMILIES = ("supports_follow_symlinks", "supports_dir_fd", "supports_fd")
# In place of a size, first of what a link leads to, then of a link itself: nothing is there; something
# that is no file. A folder, with its times.
_NOTHING, _SOMETHING, _NOTHING_ITSELF, _ITSELF, _FOLDER = -1, -2, -3, -4, -5
_LEADING = {_NOTHING, _SOMETHING}
_Path = tuple[str, bool]  # and whether it is asked where a link leads


class Asked:
    """What was asked since `run` began."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._paths: dict[_Path, None] = {}
        self._folders: dict[str, None] = {}
        self._is_noting = self._is_unknown = False
        # By name: whose place it takes, and our function.
        self._ours: dict[str, tuple[Any, Any]] = {}

    @property
    def is_noting(self) -> bool:
        return self._is_noting

    @property
    def is_unknown(self) -> bool:
        """Whether there was something that nobody can ask again."""
        return self._is_unknown

    def run(self, make: Callable[..., Any], *arguments: Any) -> Any:
        """Return what `make` returns. Raises what it raises."""
        self._paths, self._folders, self._is_unknown = {}, {}, False
        try:
            self._take_place()
            self._is_noting = True
            return make(*arguments)
        except BaseException as error:
            _without_ours(error)
            raise
        finally:
            self._is_noting = False
            for name, (theirs, ours) in self._ours.items():
                if getattr(os, name) is ours:  # else somebody has changed it since
                    setattr(os, name, theirs)

    def note_folder(self, path: object) -> None:
        """Note that compiled code looks for more beside a file."""
        try:
            self._folders[os.path.dirname(absolute(path))] = None  # noqa: PTH120
        except (TypeError, ValueError, OSError):
            self._is_unknown = True

    def note_unknown(self) -> None:
        """Note that there was something that nobody can ask again."""
        self._is_unknown = True

    def identities(self, opened: Sequence[str], began_ns: int) -> tuple[Identity, ...] | None:
        """Return what was asked, but for files that were opened as well; None if it may have changed
        since `began_ns`, or cannot be told."""
        if self._is_unknown:
            return None
        known = {(path, True) for path in opened}
        found = [_lies_at(*each) for each in self._paths if each not in known]
        found += map(_folder_at, self._folders)
        told = [each for each in found if each is not None and _was_so(each, began_ns)]
        return tuple(told) if len(told) == len(found) else None

    def _take_place(self) -> None:
        for name, leads in _BY_LINK.items():
            theirs = getattr(os, name)
            if name not in self._ours or self._ours[name][0] is not theirs:
                self._ours[name] = theirs, self._noting(theirs, leads)
                for family in (getattr(os, each) for each in _FAMILIES):
                    if theirs in family:
                        family.add(self._ours[name][1])
            setattr(os, name, self._ours[name][1])

    def _noting(self, theirs: Any, leads: bool) -> Callable[..., Any]:
        @functools.wraps(theirs)
        def noting(path: Any, *arguments: Any, **named: Any) -> Any:
            if self._is_noting and not isinstance(path, int) and os.getpid() == self._pid:
                self._note(path, leads and named.get("follow_symlinks", True), named)
            return theirs(path, *arguments, **named)

        return noting

    def _note(self, path: Any, leads: bool, named: dict[str, Any]) -> None:
        try:
            self._paths[absolute(path), leads] = None
        except (TypeError, ValueError, OSError):
            self._is_unknown = True
        self._is_unknown |= named.get("dir_fd") is not None


_NOTING_CODE = next(
    each for each in Asked._noting.__code__.co_consts if getattr(each, "co_name", "") == "noting"
)


def _without_ours(error: BaseException) -> None:
    """Take our function's frames out of a traceback, and of those of what led to it."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        left += [each.__cause__, each.__context__]
        here = each.__traceback__
        while here is not None:
            while here.tb_next is not None and here.tb_next.tb_frame.f_code is _NOTING_CODE:
                here.tb_next = here.tb_next.tb_next
            here = here.tb_next


def _lies_at(path: str, leads: bool) -> Identity | None:
    """Return what lies at a path; None if that cannot be asked."""
    try:
        status = os.stat(path, follow_symlinks=leads)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return (path, _NOTHING if leads else _NOTHING_ITSELF, 0, 0, 0, 0)
    except (OSError, ValueError):
        return None
    if leads and stat.S_ISREG(status.st_mode):
        return identity_of(path)
    times = status.st_mtime_ns, status.st_ctime_ns
    if stat.S_ISDIR(status.st_mode):
        times = 0, 0
    return (path, _SOMETHING if leads else _ITSELF, *times, status.st_ino, status.st_dev)


def _folder_at(path: str) -> Identity | None:
    try:
        status = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    times = status.st_mtime_ns, status.st_ctime_ns
    return (path, _FOLDER, *times, status.st_ino, status.st_dev)


def _was_so(told: Identity, began_ns: int) -> bool:
    """Whether that was so when a computation began."""
    if told[1] not in (_NOTHING, _NOTHING_ITSELF):
        return is_settled(told, began_ns)
    path = told[0]
    while (above := os.path.dirname(path)) != path:  # noqa: PTH120
        folder = _folder_at(above)
        if folder is not None:
            return is_settled(folder, began_ns)  # nothing has come or gone there
        path = above
    return False


def are_same(told: Sequence[Identity]) -> bool:
    """Whether files are still what they were, and all else that was asked is as it was."""
    return all(_again(each) == tuple(each) for each in told)


def _again(told: Identity) -> Identity | None:
    path, code = told[:2]
    if code >= 0:
        return identity_of(path)
    return _folder_at(path) if code == _FOLDER else _lies_at(path, code in _LEADING)
