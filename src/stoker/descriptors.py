"""Receives descriptors, and tells whether one is still ours: a script may close all, and reuse the numbers.

Promise: standard library only; raises nothing but what `of` and `receive` document.
"""

import array
import os
import socket

Identity = tuple[int, int]


def of(fd: int) -> Identity:
    """Return an open file's identity: device and inode, which pipes, sockets and memfds have too.

    Raises OSError if the descriptor is closed.
    """
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def is_still(fd: int, identity: Identity) -> bool:
    """Whether a descriptor still refers to what it did when `of` returned its identity."""
    try:
        return of(fd) == identity
    except OSError:
        return False


def close(fd: int, identity: Identity) -> None:
    """Close a descriptor, unless its number refers to something else by now."""
    if is_still(fd, identity):
        os.close(fd)


def receive(
    sock: socket.socket, nbytes: int, max_fds: int, flags: int = 0
) -> tuple[bytes, list[int]]:
    """Receive a message of a Unix socket with its descriptors, which no program inherits.

    Not by `socket.recv_fds`, which leaves its flags out (CPython 3.11 to 3.13, Lib/socket.py).
    Raises OSError.
    """
    fds = array.array("i")
    data, ancillary, _, _ = sock.recvmsg(
        nbytes, socket.CMSG_LEN(max_fds * fds.itemsize), flags | socket.MSG_CMSG_CLOEXEC
    )
    for level, kind, payload in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
    return data, list(fds)


class Kept(socket.socket):
    """A socket that its owner closes, never the garbage collector.

    The collector finalizes the objects of a cycle in any order: a plain socket could be closed
    before the `__del__` of the iterator, which still has to ask its workers to leave.
    """

    def __del__(self) -> None:
        """Do nothing, unlike the base class's, which closes the socket."""


def kept(sock: socket.socket) -> Kept:
    """Return the same socket as a Kept one; `sock` itself is detached."""
    return Kept(sock.family, sock.type, sock.proto, sock.detach())


def close_socket(sock: socket.socket, identity: Identity) -> None:
    """Close a socket; if its number refers to something else by now, that stays open."""
    if sock.fileno() >= 0 and not is_still(sock.fileno(), identity):
        sock.detach()
    sock.close()
