"""Sends to one loader's workers, and polls their sockets and whatever else has news of them.

There is no reader thread: frames wait in the sockets until the iterator asks for them.
Owner: the thread that iterates.
"""

import functools
import socket
from collections.abc import Callable
from typing import NamedTuple

from stoker import descriptors
from stoker.poll_loop import PollLoop
from stoker.scheduler.tasks.slot import Slot
from stoker.wire.arena import Lender
from stoker.wire.channel import Channel


class Line(NamedTuple):
    """The connection to one worker. lender: of the arena that it puts its batches into, if any."""

    channel: Channel
    lender: Lender | None
    is_away: bool


class Lines:
    def __init__(self, on_news: Callable[[Slot], None]) -> None:
        """Start with no sockets. on_news: called in `loop` when a worker has said something, or is
        gone."""
        self.loop = PollLoop()
        self._on_news = on_news
        self._lines: dict[Slot, Line] = {}
        self._unsent: set[Channel] = set()

    @property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(self._lines)

    def get(self, slot: Slot) -> Line | None:
        return self._lines.get(slot)

    @property
    def all(self) -> tuple[Line, ...]:
        return tuple(self._lines.values())

    def add(self, slot: Slot, sock: socket.socket, lender: Lender | None, is_away: bool) -> Line:
        line = Line(Channel(descriptors.kept(sock)), lender, is_away)
        self._lines[slot] = line
        self.loop.add(line.channel.fileno(), functools.partial(self._on_news, slot))
        return line

    def send(self, line: Line, *parts: bytes | memoryview) -> None:
        """Send to a worker. Never waits: what the socket does not take now goes out later."""
        channel = line.channel
        channel.send(*parts)
        if channel.has_unsent and channel not in self._unsent:
            self._unsent.add(channel)
            self.loop.look_for_room([channel])

    def send_rest(self) -> None:
        """Send as much of what could not be sent before as there is room for now."""
        if not self._unsent:
            return
        for channel in self._unsent:
            channel.flush()
        self.loop.look_for_room(self._unsent)
        self._unsent = {channel for channel in self._unsent if channel.has_unsent}

    def finish(self) -> None:
        """Tell every worker that nothing more will be sent, so that it ends."""
        for line in self._lines.values():
            line.channel.finish()

    def hang_up(self, slot: Slot) -> None:
        channel = self._lines.pop(slot).channel
        self._unsent.discard(channel)
        self.loop.remove(channel.fileno())
        channel.close()

    def abandon(self) -> None:
        """Close a forked child's copies of the sockets, which are the parent's."""
        for line in self._lines.values():
            line.channel.close()
