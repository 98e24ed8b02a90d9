"""Unpacks a job on a worker's machine, once, in a process that forks the job's workers.

Promise: each worker begins from the job as it was at iter(), as one on the trainer's machine does;
whatever the job's code does, the host that serves it goes on.
"""

import contextlib
import io
import multiprocessing
import os
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import xxhash

from stoker import descriptors
from stoker.local.template import Template
from stoker.memory.store import Shelf
from stoker.remote.net.printed import STDERR, STDOUT
from stoker.remote.net.ship import CannotGo, Manifest, unpack
from stoker.scheduler.tasks.slot import Role, Slot
from stoker.wire.arena import Arena, Room
from stoker.wire.channel import Channel
from stoker.wire.marks import Marks
from stoker.worker.job import Job
from stoker.worker.main import main

_SLOT = struct.Struct("<BIi")
Take = Callable[[], list[memoryview]]
"""The job's parts, as memory of the process that calls it. Raises OSError."""


class JobProcess:
    """The host's handle on one job. `fileno` is readable when there is news: see `wait_ready`."""

    def __init__(
        self, manifest: Manifest, take: Take, arena_nbytes: int, shelf: Shelf | None
    ) -> None:
        """Fork the job's process, which begins to unpack. shelf: of this machine's remembered
        samples. Raises OSError if it cannot fork."""
        self._arena_nbytes = arena_nbytes
        self._news, theirs = socket.socketpair()
        pipes = {number: os.pipe() for number in (STDOUT, STDERR)}
        # What its processes print; ends with the last of them, which may outlive it.
        self.printed_fds = {read_fd: number for number, (read_fd, _) in pipes.items()}
        write_fds = {number: write_fd for number, (_, write_fd) in pipes.items()}
        job: list[Job] = []

        def prepare() -> None:
            self._news.close()
            for fd in self.printed_fds:
                os.close(fd)
            job.append(_unpacked(manifest, take, theirs))
            theirs.close()
            _print_to(write_fds)

        def body(_: Slot, sock: socket.socket) -> None:
            slot, seat, arena, marks = _received(sock, arena_nbytes)
            wish = job[0].wish
            access = None if wish is None or shelf is None else wish.access(shelf, seat)
            main(job[0], slot, sock, Room(arena), (marks, 0), access)

        context = multiprocessing.get_context("fork")
        processes = [context.Process(daemon=True)]
        try:
            self.template = Template(processes, body, (), prepare)
        except OSError:
            for fd in self.printed_fds:
                os.close(fd)
            self._news.close()
            raise
        finally:
            theirs.close()
            for fd in write_fds.values():
                os.close(fd)

    def fileno(self) -> int:
        return self._news.fileno()

    def wait_ready(self) -> str:
        """Return an empty text once the job is unpacked; else why it cannot run here."""
        said = b""
        while piece := self._news.recv(4096):
            said += piece
        self._news.close()
        return said.decode().removeprefix("ready") if said else "its process died while unpacking"

    def start(self, own: Slot, slot: Slot, seat: int | None) -> tuple[Channel, Arena, Marks]:
        """Start a worker; returns its channel, arena and mark of the task that it is making.

        own: the template's name for it, since another of the same slot may still be ending; seat: at
        the shelf.
        """
        arena, marks = Arena(self._arena_nbytes, can_travel=True), Marks(1, can_travel=True)
        sock = self.template.start(own)
        with contextlib.suppress(OSError):  # its process has died: so will the socket say
            told = _SLOT.pack(*slot, -1 if seat is None else seat)
            socket.send_fds(sock, [told], [arena.fd, marks.fd])
        return Channel(sock), arena, marks

    def close(self) -> None:
        """End the job's workers at once, without grace."""
        is_unpacking = self._news.fileno() >= 0
        self._news.close()
        self.template.close(0.0)
        if is_unpacking and not self.template.is_gone:  # strangers' code, which may take for ever
            self.template.kill()


def _unpacked(manifest: Manifest, take: Take, news: socket.socket) -> Job:
    """Unpack a job and report the outcome; exit if it failed. Runs user code: `__setstate__`."""
    try:
        job = unpack(manifest, _verified(manifest, take()))._replace(tells_shapes=True)
        news.sendall(b"ready")
        news.shutdown(socket.SHUT_WR)  # what the job has started may hold it open
    except BrokenPipeError:
        os._exit(0)
    except CannotGo as error:
        _leave(news, str(error))
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        _leave(news, f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})")
    return job


def _print_to(fds: dict[int, int]) -> None:
    """Send what is printed from here on to the script. What modules print when they are imported is
    not sent: a fork would not have imported them again."""
    for number, fd in fds.items():
        os.dup2(fd, number)
        os.close(fd)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # or it is seen when the worker ends


def _verified(manifest: Manifest, pieces: list[memoryview]) -> list[memoryview]:
    """Check that parts are what the trainer packed. Raises CannotGo."""
    for part, piece in zip(manifest.parts, pieces, strict=True):
        if xxhash.xxh3_128_hexdigest(piece) != part.digest:
            raise CannotGo("what came there is not what was sent: please report it")
    return pieces


def _leave(news: socket.socket, why: str) -> NoReturn:
    with contextlib.suppress(OSError):  # the host wants to know no more
        news.sendall(why.encode())
        news.shutdown(socket.SHUT_WR)
    os._exit(0)


def _received(sock: socket.socket, nbytes: int) -> tuple[Slot, int | None, Arena, Marks]:
    """Receive a worker's slot, seat, arena and mark."""
    sock.setblocking(True)
    data, fds = descriptors.receive(sock, _SLOT.size, 2)
    if not fds:
        sys.exit(1)  # the host has ended
    role, number, seat = _SLOT.unpack(data)
    arena = Arena(nbytes, can_travel=True, fd=fds[0])
    slot, marks = Slot(Role(role), number), Marks(1, can_travel=True, fd=fds[1])
    return slot, None if seat < 0 else seat, arena, marks


def is_stopped(pid: int) -> bool:
    """Whether a process is stopped (SIGSTOP): it would never answer. Source: proc(5), stat."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return stat.rpartition(")")[2].split()[0] in "Tt"
    except (OSError, IndexError):
        return False


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
