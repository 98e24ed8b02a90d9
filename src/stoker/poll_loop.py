"""Poll loop: calls one callback per ready descriptor, and polls for writing only where needed.

Promise: a handler is called only while its descriptor is its own.
Owner: one thread, which `wait`s.
"""

import selectors
from collections.abc import Callable, Iterable
from typing import Protocol

from stoker.clock import Deadline

Handler = Callable[[], None]
Ready = list[tuple[selectors.SelectorKey, int]]
_READ, _BOTH = selectors.EVENT_READ, selectors.EVENT_READ | selectors.EVENT_WRITE


class HasFd(Protocol):
    def fileno(self) -> int: ...


def wait_ready(*ends: int | HasFd, by: Deadline, is_to_write: bool = False) -> bool:
    """Wait until one of these can be read, or written to. Returns False if time is over."""
    with selectors.PollSelector() as selector:
        for end in ends:
            selector.register(end, selectors.EVENT_WRITE if is_to_write else _READ)
        return bool(selector.select(by.left_s()))


class Sends(HasFd, Protocol):
    """An end of a connection that keeps what could not be sent."""

    @property
    def has_unsent(self) -> bool: ...


class PollLoop:
    """Polls descriptors and calls their handlers. Not epoll, which forked processes would share."""

    def __init__(self) -> None:
        self._selector = selectors.PollSelector()
        self._handlers: dict[int, Handler] = {}
        self._unsent: set[int] = set()

    def __contains__(self, fd: int) -> bool:
        return fd in self._handlers

    def add(self, fd: int, handler: Handler) -> None:
        self._selector.register(fd, _READ)
        self._handlers[fd] = handler

    def remove(self, fd: int) -> None:
        """Stop polling a descriptor, before it is closed: its number may be another's soon."""
        self._selector.unregister(fd)
        del self._handlers[fd]
        self._unsent.discard(fd)

    def look_for_room(self, ends: Iterable[Sends]) -> None:
        """Poll for writing those ends that have unsent bytes: their handlers are called too."""
        for end in ends:
            fd, has_unsent = end.fileno(), end.has_unsent
            if has_unsent != (fd in self._unsent):
                self._selector.modify(fd, _BOTH if has_unsent else _READ)
                (self._unsent.add if has_unsent else self._unsent.discard)(fd)

    def wait(self, timeout_s: float | None) -> None:
        """Poll, and call the handlers of ready descriptors. timeout_s: None waits without limit."""
        self.call(self.poll(timeout_s))

    def poll(self, timeout_s: float | None) -> Ready:
        """Return the descriptors that are ready by then, for `call`."""
        return self._selector.select(timeout_s)

    def call(self, ready: Ready) -> None:
        """Call the handlers of the descriptors that were ready."""
        for fd, handler in [(key.fd, self._handlers[key.fd]) for key, _ in ready]:
            if self._handlers.get(fd) is handler:  # else it is another's number by now
                handler()
