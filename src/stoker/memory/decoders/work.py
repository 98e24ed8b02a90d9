"""One call of a decoder: what it is known by, how it is made, and how it comes back from the shelf."""

import io
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

from stoker.memory.store import NotStorable, is_alone
from stoker.memory.watch import Identity, identity_of

Identify = Callable[[], tuple[Identity, ...] | None]


def payload_of(holder: list[Any]) -> Any:
    """Return holder[0], to be kept as it is. Raises NotStorable if anything else holds it."""
    if not is_alone(holder, 0):
        raise NotStorable("is held elsewhere too")
    return holder[0]


class Work(NamedTuple):
    """One call.

    told: all that the value depends on but the file, to be read by `repr`;
    paths: of the files that may be opened to make it;
    identify: returns what these are known by now, None if they are not known;
    make: calls the function; payload: of a list that alone holds its value returns what is to be
    kept, or raises NotStorable; serve: returns a value made of what was kept; takes_copy: of memory
    of its own, else of the shelf's.
    """

    told: object
    paths: frozenset[str]
    identify: Identify
    make: Callable[[], Any]
    payload: Callable[[list[Any]], Any] = payload_of
    serve: Callable[[Any], Any] = lambda value: value
    takes_copy: bool = True


def of_path(path: str) -> Identify:
    """Return what asks for the identity of the file at an absolute path."""

    def identify() -> tuple[Identity, ...] | None:
        identity = identity_of(path)
        return None if identity is None else (identity,)

    return identify


def of_open_file(path: str, file: Any) -> Identify:
    """Return what asks for the identity of an open file, whatever lies at its path by now; once it
    is closed, of what lies there: if that is another file, it is known by that."""

    def identify() -> tuple[Identity, ...] | None:
        identity = identity_of(path, None if file.closed else file.fileno())
        return None if identity is None else (identity,)

    return identify


def of_bytes() -> tuple[Identity, ...]:
    """Return the identity of no file: where the value is known by the bytes themselves."""
    return ()


def is_plain_file(file: Any) -> bool:
    """Whether an open file is Python's own for reading, opened by its path."""
    if type(file) is not io.BufferedReader or type(file.raw) is not io.FileIO:
        return False
    return not file.closed and type(file.name) in (str, pathlib.PosixPath)
