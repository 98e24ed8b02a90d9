"""Makes warnings name the same line with stoker as without.

`warnings.warn(..., stacklevel=2)` names the line of a frame further up. If a function of ours
wraps one of torch's, there is one frame too many; if it replaces one, the file is another.

Promise: standard library only; nothing is done when a function is called, nothing for all threads.
"""

import dis
import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

# Frames whose file has both words in its name do not count for a stacklevel: they are the import
# system's. Source: Python/_warnings.c `is_internal_filename`, Lib/warnings.py, 3.11 to 3.14
_NOT_COUNTED = "importlib._bootstrap"


def passed_over(function: F) -> F:
    """Keep a function's frames out of stacklevels: for a wrapper that calls torch's function.

    Returns the function itself, changed in place.
    """
    code = function.__code__
    name = f"{code.co_filename} (as {_NOT_COUNTED})"  # shows in tracebacks
    function.__code__ = code.replace(co_filename=name)
    return function


@functools.cache
def standing_at(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a function that calls its first argument with the others.

    Its frame looks like that of a library's `function`, at the line of it that names `name`; if no
    line does, the frame is one of ours.
    """
    library = inspect.unwrap(function)
    line = _line_of(library, name)
    if line is None:
        return _call
    code = _call.__code__.replace(
        co_filename=library.__code__.co_filename, co_firstlineno=line, co_name=library.__name__
    )
    return FunctionType(code, library.__globals__)


def _line_of(function: Callable[..., Any], name: str) -> int | None:
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    lines = (
        i.positions.lineno
        for i in dis.get_instructions(code)
        if i.argval == name and i.positions and i.opname.startswith("LOAD")  # not: `for name in`
    )
    return next(lines, None)


_call = lambda call, *args: call(*args)  # noqa: E731  # all of it on one line
