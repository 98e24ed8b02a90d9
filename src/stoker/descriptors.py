"""Whether a descriptor is still ours: a script may close all that there are, and use the numbers.

Promise: standard library only; raises nothing but what `of` says.
"""

import os
import socket

Identity = tuple[int, int]


def of(fd: int) -> Identity:
    """What is behind it: device and inode, which pipes, sockets and memfds have as well.

    Raises OSError where it is closed.
    """
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def is_still(fd: int, identity: Identity) -> bool:
    """Whether this number still is what it was when `of` told its identity."""
    try:
        return of(fd) == identity
    except OSError:
        return False


def close(fd: int, identity: Identity) -> None:
    """Close it, unless its number is somebody else's by now."""
    if is_still(fd, identity):
        os.close(fd)


class Kept(socket.socket):
    """A socket that its owner closes, never the garbage collector.

    The collector finalizes the objects of a cycle in any order: a plain socket could be closed
    before the `__del__` of the iterator, which still has to ask its workers to leave.
    """

    def __del__(self) -> None:
        """In place of the base's, which closes."""


def kept(sock: socket.socket) -> Kept:
    """The same socket as a Kept one; `sock` itself is detached."""
    return Kept(sock.family, sock.type, sock.proto, sock.detach())


def close_socket(sock: socket.socket, identity: Identity) -> None:
    """Close it; what has its number by now stays open."""
    if sock.fileno() >= 0 and not is_still(sock.fileno(), identity):
        sock.detach()
    sock.close()
