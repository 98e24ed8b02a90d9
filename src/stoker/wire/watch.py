"""Who is called when a descriptor has news, and which ones room is waited for in.

Promise: a handler is called only while its descriptor is its own.
Owner: one thread, which `wait`s.
"""

import select
from collections.abc import Callable, Iterable
from typing import Protocol

Handler = Callable[[], None]


class Sends(Protocol):
    """One end of a connection that keeps what could not be sent."""

    @property
    def has_unsent(self) -> bool: ...

    def fileno(self) -> int: ...


class Watch:
    """Descriptors and their handlers."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._handlers: dict[int, Handler] = {}
        self._unsent: set[int] = set()

    def __contains__(self, fd: int) -> bool:
        return fd in self._handlers

    def add(self, fd: int, handler: Handler) -> None:
        self._poll.register(fd, select.POLLIN)
        self._handlers[fd] = handler

    def remove(self, fd: int) -> None:
        """Before it is closed: its number may be another's soon."""
        self._poll.unregister(fd)
        del self._handlers[fd]
        self._unsent.discard(fd)

    def look_for_room(self, ends: Iterable[Sends]) -> None:
        """Wait for room only where something waits to be sent: its handler is called then too."""
        for end in ends:
            fd, has_unsent = end.fileno(), end.has_unsent
            if has_unsent != (fd in self._unsent):
                self._poll.modify(fd, select.POLLIN | (select.POLLOUT if has_unsent else 0))
                (self._unsent.add if has_unsent else self._unsent.discard)(fd)

    def wait(self, timeout_s: float) -> None:
        """Call the handlers of all that have news by then."""
        events = self._poll.poll(timeout_s * 1000)
        for fd, handler in [(fd, self._handlers[fd]) for fd, _ in events]:
            if self._handlers.get(fd) is handler:  # else it is another's number by now
                handler()
