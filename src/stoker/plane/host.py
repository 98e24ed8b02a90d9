"""One CPU of a cluster: dials the trainer, runs chains' workers as it is told, and sends batches.

    python -m stoker.plane.host          its Pass, and who it is, come on stdin as JSON

Promise: it keeps nothing. When the trainer is gone or silent, or whoever started it is gone, its
workers are killed and it ends, within LOST_S and the template's grace.
Owner: the one thread of the process.
"""

import functools
import json
import os
import select
import signal
import sys
from typing import Any

import torch

from stoker.clock import Deadline, now_s
from stoker.cluster.hosts import UNREACHABLE
from stoker.cluster.local import die_with_parent, reap
from stoker.cluster.sizing import machine_nbytes
from stoker.plane.auth import Pass, dial, versions
from stoker.plane.guest import Guest, is_stopped, kill
from stoker.plane.link import BEAT_S, LOST_S, Link, Message, Word
from stoker.plane.relay import Outlet
from stoker.plane.ship import Manifest
from stoker.wire.channel import ConnectionLost
from stoker.wire.lossless import Encoder, warm

DIAL_S = 10.0
# Address space of one worker's arena. Only touched pages exist, but a process has 128 TiB for all.
ARENA_NBYTES = 64 << 30
# A stopped worker is given this long to be continued before it is taken for lost.
STOPPED_S = 1.5
# Parts of jobs that have ended are kept for the next epoch's job, which is often the same.
KEPT_NBYTES = 4 << 30


class _Lane:
    """One worker: its outlet, job and slot, and since when it is stopped."""

    def __init__(self, outlet: Outlet, job: int, slot: int) -> None:
        self.outlet = outlet
        self.job = job
        self.slot = slot
        self.pid = 0
        self.stopped_s: float | None = None
        self.is_leaving = False  # its socket has ended, and how it ended is not known yet


class _Leave(Exception):
    """Whoever started this host is gone, or gives it back."""


class Host:
    """See the module. `serve` until the trainer is gone."""

    def __init__(self, link: Link, arena_nbytes: int, encoder: Encoder | None) -> None:
        self._link = link
        self._arena_nbytes = arena_nbytes
        self._encoder = encoder
        self._manifests: dict[int, Manifest] = {}
        self._guests: dict[int, Guest] = {}
        self._is_ready: set[int] = set()
        self._lanes: dict[int, _Lane] = {}
        self._parts: dict[str, bytearray] = {}  # by digest; oldest first
        self._coming: dict[str, bytearray] = {}
        self._poll = select.poll()
        self._handlers: dict[int, Any] = {}
        self._heard_s = self._spoke_s = now_s()
        self._num_heard_nbytes = 0
        os.register_at_fork(after_in_child=self._abandon)

    def _abandon(self) -> None:
        """In a job's process: the trainer must see this host end even while that one lives."""
        self._link.close()
        for lane in self._lanes.values():
            lane.outlet.channel.close()
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)

    def serve(self, parent: int) -> int:
        """Until the trainer is gone, or told to leave. Returns the exit code: 0 where it was told.

        parent: file descriptor that ends with whoever started this host, or gives it back.
        """
        self._watch(self._link, self._hear)
        self._watch(parent, self._leave)
        try:
            while now_s() - self._heard_s < LOST_S:
                unsent = select.POLLOUT if self._link.has_unsent else 0
                self._poll.modify(self._link, select.POLLIN | unsent)
                for fd, _ in self._poll.poll(BEAT_S * 500):
                    handler = self._handlers.get(fd)
                    if handler is not None:
                        handler()
                self._look_around()
        except _Leave:
            return 0
        except ConnectionLost:
            return 1
        finally:
            for guest in self._guests.values():
                guest.close()
        return 1

    def _watch(self, source: Any, handler: Any) -> None:
        fd = source if isinstance(source, int) else source.fileno()
        self._poll.register(fd, select.POLLIN)
        self._handlers[fd] = handler

    def _unwatch(self, fd: int) -> None:
        self._poll.unregister(fd)
        del self._handlers[fd]

    def _leave(self) -> None:
        raise _Leave

    def _say(self, word: Word, lane: int, head: bytes = b"") -> None:
        self._spoke_s = now_s()
        self._link.send(word, lane, head)

    def _look_around(self) -> None:
        """What nobody tells: the time, and workers that were stopped."""
        self._link.flush()
        reap()
        now = now_s()
        if now - self._spoke_s < BEAT_S:
            return
        self._say(Word.BEAT, 0)
        for lane in self._lanes.values():
            lane.outlet.channel.flush()  # FRAME messages wait there while the worker is busy
            if not lane.pid or not is_stopped(lane.pid):
                lane.stopped_s = None
            elif lane.stopped_s is None:
                lane.stopped_s = now
            elif now - lane.stopped_s > STOPPED_S:
                kill(lane.pid)

    # -- what the trainer says -------------------------------------------------------------------

    def room(self, message: Message) -> list[memoryview]:
        """Of the link: a part of a job."""
        digest = bytes(message.head).decode()
        part = self._coming[digest] = bytearray(message.body_nbytes)
        return [memoryview(part)]

    def _hear(self) -> None:
        while (message := self._link.receive_nowait()) is not None:
            self._heard_s = now_s()
            self._obey(message)
        if self._link.num_received_nbytes != self._num_heard_nbytes:  # in the middle of a message
            self._num_heard_nbytes, self._heard_s = self._link.num_received_nbytes, now_s()

    def _obey(self, message: Message) -> None:
        lane = self._lanes.get(message.lane)
        match message.kind:
            case Word.JOB:
                self._manifests[message.lane] = Manifest.from_json(bytes(message.head))
                self._want(message.lane)
            case Word.PART:
                digest = bytes(message.head).decode()
                self._parts[digest] = self._coming.pop(digest)
                self._begin_jobs()
            case Word.FORGET:
                self._forget(message.lane)
            case Word.START:
                self._start(message.lane, *json.loads(bytes(message.head)))
            case Word.FRAME if lane is not None and not lane.is_leaving:
                lane.outlet.deliver(message)
            case Word.HANG_UP if lane is not None and not lane.is_leaving:
                lane.outlet.channel.finish()
            case Word.SIGNAL if lane is not None:
                self._guests[lane.job].template.signal(lane.slot, int(bytes(message.head)))

    def _want(self, number: int) -> None:
        missing = list(dict.fromkeys(part.digest for part in self._manifests[number].parts))
        missing = [digest for digest in missing if digest not in self._parts]
        if missing:
            self._say(Word.WANT, number, json.dumps(missing).encode())
        self._begin_jobs()

    def _begin_jobs(self) -> None:
        for number, manifest in self._manifests.items():
            digests = [part.digest for part in manifest.parts]
            if number not in self._guests and all(d in self._parts for d in digests):
                # Equal parts are memory of their own all the same: the job may write to one of them.
                pieces = [
                    bytearray(self._parts[digest]) if digest in digests[:i] else self._parts[digest]
                    for i, digest in enumerate(digests)
                ]
                try:
                    guest = Guest(manifest, pieces, self._arena_nbytes)
                except OSError as error:  # no process can be forked
                    self._say(Word.CANNOT, number, str(error).encode())
                    continue
                self._guests[number] = guest
                self._watch(guest, functools.partial(self._told, number))
                self._watch(guest.template, functools.partial(self._hear_template, number))

    def _told(self, number: int) -> None:
        """A job's process has unpacked it, or could not."""
        guest = self._guests[number]
        self._unwatch(guest.fileno())
        why = guest.wait_ready()
        if why:
            self._say(Word.CANNOT, number, why.encode())
        else:
            self._say(Word.READY, number)

    def _forget(self, number: int) -> None:
        self._manifests.pop(number, None)
        guest = self._guests.pop(number, None)
        if guest is not None:
            if guest.fileno() in self._handlers:
                self._unwatch(guest.fileno())
            if guest.template.fileno() in self._handlers:
                self._unwatch(guest.template.fileno())
            guest.close()
        for lane in [lane for lane in self._lanes.values() if lane.job == number]:
            self._hang_up(lane)
            del self._lanes[lane.outlet.lane]
        kept = {part.digest for m in self._manifests.values() for part in m.parts}
        spare = [digest for digest in self._parts if digest not in kept]
        while spare and sum(len(part) for part in self._parts.values()) > KEPT_NBYTES:
            del self._parts[spare.pop(0)]

    # -- workers ---------------------------------------------------------------------------------

    def _start(self, number: int, job: int, slot: int) -> None:
        guest = self._guests.get(job)
        if guest is None:
            self._say(Word.ENDED, number, json.dumps((-1, 1)).encode())
            return
        try:
            channel, arena = guest.start(slot)
        except OSError:  # no memory, or no file descriptors
            self._say(Word.ENDED, number, json.dumps((-1, 1)).encode())
            return
        outlet = Outlet(number, channel, arena, self._link, self._encoder)
        lane = self._lanes[number] = _Lane(outlet, job, slot)
        self._watch(channel, functools.partial(self._pump, lane))

    def _pump(self, lane: _Lane) -> None:
        try:
            lane.outlet.pump()
            lane.outlet.channel.flush()
        except ConnectionLost:
            self._hang_up(lane)
            self._hear_template(lane.job)

    def _hear_template(self, job: int) -> None:
        """Workers that have begun, how those ended whose sockets have, and the job's own end."""
        template = self._guests[job].template
        fd = template.fileno()
        is_gone = template.wait_gone(Deadline(0))
        for lane in [lane for lane in self._lanes.values() if lane.job == job]:
            if not lane.pid:
                lane.pid = template.wait_pid(lane.slot, Deadline(0)) or 0
                if lane.pid:
                    self._say(Word.STARTED, lane.outlet.lane, str(lane.pid).encode())
            how = template.wait_exit(lane.slot, Deadline(0)) if lane.is_leaving else None
            if how is not None or (lane.is_leaving and is_gone):
                words = (how.pid, how.code) if how is not None else (lane.pid, -signal.SIGKILL)
                self._say(Word.ENDED, lane.outlet.lane, json.dumps(words).encode())
                del self._lanes[lane.outlet.lane]
        if is_gone and fd in self._handlers:
            self._unwatch(fd)
            self._say(Word.CANNOT, job, b"its process has ended")

    def _hang_up(self, lane: _Lane) -> None:
        if not lane.is_leaving:
            lane.is_leaving = True
            self._unwatch(lane.outlet.channel.fileno())
            lane.outlet.channel.close()


def run() -> int:
    said = json.loads(sys.stdin.buffer.readline())
    if said.get("is_bound"):
        die_with_parent()
    way = Pass(said["address"], said["port"], bytes.fromhex(said["token"]), said["certificate"])
    torch.set_num_threads(1)
    hello = {
        "name": said["name"],
        "node": said["node"],
        "pid": os.getpid(),
        **versions(of_all=True),
    }
    encoder = None
    if not way.address.startswith("127."):  # no codec is as fast as loopback
        warm()  # before anybody waits: the first process of a machine compiles for seconds
        encoder = Encoder()
    try:
        link = Link(dial(way, hello, DIAL_S))
    except OSError:
        return UNREACHABLE  # it has ended meanwhile, or cannot be reached from here
    host = Host(link, min(machine_nbytes(), ARENA_NBYTES), encoder)
    link.room = host.room
    return host.serve(sys.stdin.fileno())


if __name__ == "__main__":
    sys.exit(run())
