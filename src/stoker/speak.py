"""Prints stoker's messages to the user on stderr, whatever the script has done to that.

Promise: raises no exception and no signal in the script, and leaves no byte in a buffer of the
script's, with which Python would end with 120 if nothing can be written. A message that cannot be
written is dropped. What a signal handler of the script raises meanwhile passes through.
Ban: nothing goes to stdout. Every message goes through this module.
"""

import io
import os
import sys

TYPE_CHECKING = False  # as typing's, which costs 3 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ParamSpec, TextIO, TypeVar

    P = ParamSpec("P")
    T = TypeVar("T")


def say(text: str) -> None:
    """Print one line, which begins with `stoker: `."""
    wipe()
    write(f"stoker: {text}\n")


_shown_by = 0  # the process whose text stands below the cursor


def show(text: str) -> None:
    """Draw text in the row below the cursor, where it stands until it is wiped; for terminals.

    The cursor stays where it is, and so does what the script wrote before it: the script's next
    line is whole.
    """
    global _shown_by
    _shown_by = os.getpid()
    # Index and up: there is such a row. Erase; save the cursor; down, no wrapping; and back.
    write(f"\x1bD\x1b[A\x1b[J\x1b7\x1b[B\r\x1b[?7l{text}\x1b[?7h\x1b8")


def wipe() -> None:
    """Erase what `show` has drawn. Does nothing in a forked child."""
    global _shown_by
    if _shown_by:
        is_ours, _shown_by = _shown_by == os.getpid(), 0
        if is_ours:
            write("\x1b[J")


def write(text: str) -> None:
    """Write text to stderr as it is."""
    try:
        without_signals(lambda: _put(sys.stderr, text))
    except Exception as error:  # a full disk, a closed pipe, an object of the script's that raises
        if raised_by_handler(error):
            raise


def guarded(method: "Callable[P, T]") -> "Callable[P, T | None]":
    """Guard a function that only counts, times or reports: an error in it becomes one line, None
    its result. What a signal handler of the script's raises meanwhile passes through."""

    def call(*args: "P.args", **values: "P.kwargs") -> "T | None":
        try:
            return method(*args, **values)
        except Exception as error:
            if raised_by_handler(error):
                raise
            _tell(error)
            return None

    call.__doc__ = method.__doc__
    call.__wrapped__ = method  # type: ignore[attr-defined]  # as functools.wraps does, which is dear
    return call


_told: "list[str]" = []  # once a process is enough


def _tell(error: Exception) -> None:
    if _told:
        return
    _told.append(type(error).__name__)
    try:
        text = f": {error}"
    except Exception:  # the script's own class may not be shown
        text = ""
    say(f"the report will lack something: {_told[0]}{text}")


def raised_by_handler(error: BaseException) -> bool:
    """Whether a signal handler of the script raised it: Python calls them between any two of our
    instructions."""
    import signal

    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {id(code) for each in handlers if (code := _code_of(each)) is not None}
    trace = error.__traceback__
    while trace is not None:
        if id(trace.tb_frame.f_code) in codes:
            return True
        trace = trace.tb_next
    return False


def _code_of(handler: object) -> object:
    """Return the code that Python runs when it calls a handler; None if it is not Python code."""
    if not callable(handler):  # SIG_DFL, SIG_IGN
        return None
    called = handler if hasattr(handler, "__code__") else type(handler).__call__
    return getattr(called, "__code__", None)


def without_signals(call: "Callable[[], T]") -> "T":
    """Return what `call` returns, without the signals of a write that fails.

    SIGPIPE or SIGXFSZ would come to this thread: the script may have given them their default,
    which is death, or a handler of its own.
    """
    import signal  # 1 ms, where nothing has imported it

    deadly = {signal.SIGPIPE, signal.SIGXFSZ}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    pending = signal.sigpending()
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, deadly)
        return call()
    finally:
        for number in signal.sigpending() & deadly - pending:
            signal.sigtimedwait({number}, 0)  # another thread may have taken it meanwhile
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _put(stream: "TextIO | None", text: str) -> None:
    """Write text past the buffer of Python's own stderr, which would retry it at exit."""
    if stream is None:  # print() would go to stdout
        return
    if type(stream) is not io.TextIOWrapper:
        stream.write(text)
        stream.flush()
        return
    stream.flush()  # the script's own words come first
    try:
        fd = stream.fileno()
    except OSError:  # it wraps memory
        stream.write(text)
    else:
        os.write(fd, text.encode(stream.encoding, "backslashreplace"))
