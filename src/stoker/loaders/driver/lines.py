"""Sends to one loader's workers, and polls their sockets and whatever else has news of them.

There is no reader thread: frames wait in the sockets until the iterator asks for them.
Owner: the thread that iterates.
"""

import functools
import socket
from collections.abc import Callable

from stoker import descriptors
from stoker.scheduler.tasks.slot import Slot
from stoker.wire.channel import Channel
from stoker.wire.poll_loop import PollLoop


class Lines:
    def __init__(self, on_news: Callable[[Slot], None]) -> None:
        """Start with no sockets. on_news: called in `loop` when a worker has said something, or is
        gone."""
        self.loop = PollLoop()
        self._on_news = on_news
        self._channels: dict[Slot, Channel] = {}
        self._unsent: set[Channel] = set()

    @property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(self._channels)

    def get(self, slot: Slot) -> Channel | None:
        return self._channels.get(slot)

    def add(self, slot: Slot, sock: socket.socket) -> None:
        channel = self._channels[slot] = Channel(descriptors.kept(sock))
        self.loop.add(channel.fileno(), functools.partial(self._on_news, slot))

    def say(self, slot: Slot, *parts: bytes | memoryview) -> None:
        """Send to a slot's worker; never waits. One being lost gets none: its replacement does."""
        channel = self._channels.get(slot)
        if channel is None:
            return
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
        for channel in self._channels.values():
            channel.finish()

    def hang_up(self, slot: Slot) -> None:
        channel = self._channels.pop(slot)
        self._unsent.discard(channel)
        self.loop.remove(channel.fileno())
        channel.close()

    def abandon(self) -> None:
        """Close a forked child's copies of the sockets, which are the parent's."""
        for channel in self._channels.values():
            channel.close()
