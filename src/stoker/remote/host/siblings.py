"""Shares parts of jobs among the hosts of one machine, the first of which has forked the others.

    trainer --part--> Leader --bundle, a descriptor--> Follower
                        <------- wants a job ---------

A host's one thread passes on what about eight workers make (benchmarks/relay.py), so a larger
machine has several hosts, each with a link of its own; the first alone asks the trainer for parts.
Promise: hosts of a machine live and die together: if one ends, all do, and are started again.
Owner: the host's one thread.
"""

import functools
import os
import socket
import struct
from collections.abc import Callable, Sequence

from stoker import descriptors
from stoker.poll_loop import PollLoop
from stoker.remote.host.part_store import Needs, PartStore
from stoker.remote.host.parts import Bundle
from stoker.remote.net.control import TEXT_LIMIT
from stoker.wire.channel import ConnectionLost

_WANTED = struct.Struct("<I")  # a job
_GIVEN = struct.Struct(
    "<IB"
)  # a job, and whether this is its last bundle; a text says: it is refused
_NBYTES = _GIVEN.size + 4 * TEXT_LIMIT


class Leader(PartStore):
    """The part store of the host that forked the others. followers: sockets to them."""

    def __init__(self, needs: Needs, loop: PollLoop, followers: Sequence[socket.socket]) -> None:
        super().__init__(needs, num_hosts=1 + len(followers))
        self._followers = followers
        self._waiting: dict[int, list[socket.socket]] = {}  # by job: who wants it
        self._why: dict[int, str] = {}  # by job: why it is refused
        for follower in followers:
            loop.add(follower.fileno(), functools.partial(self._hear, follower))

    def forget(self, number: int) -> None:
        self._waiting.pop(number, None)
        self._why.pop(number, None)
        super().forget(number)

    def _begin(self, number: int) -> None:
        super()._begin(number)
        self._give(number)

    def _refuse(self, number: int, why: str) -> None:
        super()._refuse(number, why)
        self._why[number] = why
        self._give(number)

    def _hear(self, follower: socket.socket) -> None:
        """Take a follower's wish. Raises ConnectionLost if it has ended."""
        (number,) = _WANTED.unpack(_received(follower)[0])
        self._waiting.setdefault(number, []).append(follower)
        self._give(number)

    def _give(self, number: int) -> None:
        """Send followers that wait for a job its bundles, or why it is refused."""
        if number in self._why:
            text = self._why[number][:TEXT_LIMIT].encode()
            for follower in self._waiting.pop(number, ()):
                _send(follower, _GIVEN.pack(number, True) + text)
        elif number in self._begun:
            digests = {part.digest for part in self._jobs[number].parts}
            bundles = [bundle for bundle in self._held if not bundle.digests.isdisjoint(digests)]
            for follower in self._waiting.pop(number, ()):
                for bundle in bundles:
                    _send(follower, _GIVEN.pack(number, bundle is bundles[-1]), bundle.fd)

    def abandon(self) -> None:
        for follower in self._followers:
            follower.close()


class Follower(PartStore):
    """The part store of a host that was forked: it asks its leader in place of the trainer."""

    def __init__(self, needs: Needs, loop: PollLoop, leader: socket.socket) -> None:
        super().__init__(needs)
        self._leader = leader
        loop.add(leader.fileno(), self._hear)

    def forget(self, number: int) -> None:
        super().forget(number)
        self._let_go(0)  # the leader keeps what may be wanted again

    def _ask(self, number: int, missing: list[str]) -> None:
        _send(self._leader, _WANTED.pack(number))

    def _hear(self) -> None:
        """Take a bundle or a refusal. Raises ConnectionLost if the leader has ended."""
        said, fd = _received(self._leader)
        number, is_last = _GIVEN.unpack_from(said)
        if fd is not None:
            bundle = Bundle(fd)
            if all(any(digest in held for held in self._held) for digest in bundle.digests):
                bundle.close()
            else:
                self._held.append(bundle)
        if number not in self._jobs:
            self._let_go(0)  # it was forgotten meanwhile
        elif fd is None:
            self._refuse(number, said[_GIVEN.size :].decode(errors="replace"))
        elif is_last:
            self._seek(number)

    def abandon(self) -> None:
        self._leader.close()


def fork_followers(num: int, follow: Callable[[int, socket.socket], int]) -> list[socket.socket]:
    """Fork so many hosts. Returns sockets to them. follow: called in each, with its number from 1 on
    and a socket to the leader; returns its exit code."""
    followers: list[socket.socket] = []
    for number in range(1, num + 1):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            code = 1
            try:
                for sock in (*followers, ours):
                    sock.close()
                code = follow(number, theirs)
            finally:
                os._exit(code)
        theirs.close()
        followers.append(ours)
    return followers


def _received(sock: socket.socket) -> tuple[bytes, int | None]:
    """Receive one message, which has come. Raises ConnectionLost."""
    try:
        data, fds = descriptors.receive(sock, _NBYTES, 1)
    except OSError:
        data, fds = b"", []
    if not data:
        raise ConnectionLost("a host of this machine has ended")
    return data, fds[0] if fds else None


def _send(sock: socket.socket, data: bytes, *fds: int) -> None:
    """Send one message, and wait for room: the other hosts of this machine read at once."""
    try:
        socket.send_fds(sock, [data], fds, socket.MSG_NOSIGNAL)
    except OSError:
        return  # its end is seen where it is read
