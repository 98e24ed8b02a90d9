"""A trainer's end of the plane in the test's own process: real hosts dial it and are told what to
do; the test decides what it says, when, and counts what it sends.
"""

import contextlib
import mmap
import os
import pickle
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import Dataset, _DatasetKind, default_collate

from stoker.remote.engines.hosts import num_hosts
from stoker.remote.engines.processes import start_host
from stoker.remote.net import control
from stoker.remote.net.auth import Pass, admit, make_token
from stoker.remote.net.link import BEAT_S, Link, Message, Word
from stoker.remote.net.relay import _NUM_PARTS, _PART
from stoker.remote.net.ship import Manifest, ship
from stoker.remote.net.tls import make_certificate, server_context
from stoker.wire.batch_codec import dumps
from stoker.wire.channel import ConnectionLost
from stoker.wire.frame import HEADER, Flag, Header, Kind, pack, unpack
from stoker.wire.sections import Section, pack_section, pack_taken
from stoker.worker.job import Job
from tests.process.warm_hosts import RUN, Forked, WarmHosts
from tests.slots import C

PATIENCE_S = 60.0


@dataclass(eq=False)
class Host:
    """What the test knows of a host. process: that was started for its machine; pid: of its own;
    said: its words, but for what is counted elsewhere."""

    process: "subprocess.Popen[bytes] | Forked"
    pid: int
    link: Link
    node: str
    said: list[tuple[int, int, bytes]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)  # digests of parts
    num_beats: int = 0
    is_gone: bool = False

    def words(self, kind: int, lane: int) -> list[bytes]:
        return [head for word, at, head in self.said if (word, at) == (kind, lane)]

    def start(self, lane: int, job: int, slot: int) -> None:
        """A worker, whose BEGIN follows."""
        self.link.send(Word.START, lane, control.encode(control.Begin(job, C[slot])))
        extra = pack_taken([]) + pack_section(Section.START, pickle.dumps((None, False)))
        self.link.send(Word.FRAME, lane, pack(Kind.BEGIN, extra_nbytes=len(extra)) + extra)

    def task(self, lane: int, indices: object, task_id: int = 0) -> None:
        stream = dumps(indices)
        head = pack(Kind.TASK, task_id=task_id, stream_nbytes=len(stream), blob_nbytes=len(stream))
        self.link.send(Word.FRAME, lane, head + stream)

    def answers(self, lane: int) -> list[Header]:
        """Headers of the batches that a worker has made."""
        frames = [frame_of(head) for head in self.words(Word.FRAME, lane)]
        return [header for header in frames if header.kind in (Kind.BATCH, Kind.FAILURE)]


def frame_of(head: bytes) -> Header:
    (num_parts,) = _NUM_PARTS.unpack_from(head)
    start = _NUM_PARTS.size + num_parts * _PART.size
    start += sum(part[1] for part in _PART.iter_unpack(head[_NUM_PARTS.size : start]))
    return unpack(memoryview(head)[start : start + HEADER.size], 0)


@dataclass(eq=False)
class Packed:
    manifest: bytes
    parts: dict[str, memoryview]

    @property
    def nbytes(self) -> int:
        return sum(view.nbytes for view in self.parts.values())


def packed(dataset: Dataset[Any], num_chains: int = 2, seed: int = 1) -> Packed:
    """A job as the process that packs it gives it to the receiver."""
    job = Job(_DatasetKind.Map, dataset, True, default_collate, False, seed, None, num_chains)
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        ship(job, theirs)
        os._exit(0)
    theirs.close()
    with ours:
        _, (fd,), _, _ = socket.recv_fds(ours, 1, 1)
        said = b"".join(iter(lambda: ours.recv(1 << 16), b""))
    os.waitpid(pid, 0)
    data = memoryview(mmap.mmap(fd, 0, prot=mmap.PROT_READ))
    os.close(fd)
    manifest = Manifest.from_json(said)
    parts = zip(manifest.parts, manifest.starts, strict=True)
    return Packed(said, {part.digest: data[at : at + part.nbytes] for part, at in parts})


class OneTrainer:
    """See the module. gives: whether a part is sent when a host asks for it; at_each_turn: what else
    the test does while it waits; warm: forks the hosts, which are else started."""

    def __init__(self, is_tls: bool = False, warm: WarmHosts | None = None) -> None:
        self.warm = warm
        self.token = make_token()
        self.listening = socket.create_server(("127.0.0.1", 0))
        certificate, self.context = "", None
        if is_tls:
            certificate, key = make_certificate()
            self.context = server_context(certificate, key)
        self.way = Pass("127.0.0.1", self.listening.getsockname()[1], self.token, certificate)
        self.hosts: list[Host] = []
        self.jobs: dict[int, Packed] = {}
        self.gives: Callable[[Host, str], bool] = lambda host, digest: True
        self.at_each_turn: Callable[[], object] = lambda: None
        self._spoke_s = 0.0

    def start_hosts(
        self, num: int, node: str = "a node", code: str = RUN, num_cpus: int = 1
    ) -> list[Host]:
        """Start the hosts of so many machines. num_cpus: of each, which decides how many it has."""
        seed = os.environ.get("PYTHONHASHSEED")
        way = {**self.way._asdict(), "token": self.token.hex(), "hash_seed": seed, "node": node}
        words = {**way, "is_bound": True, "num_cpus": num_cpus}
        started = [self._start_host({**words, "name": str(k)}, code) for k in range(num)]
        hosts: dict[str, Host] = {}
        while len(hosts) < num * num_hosts(num_cpus):
            self.turn()
            if not select.select([self.listening], [], [], 0)[0]:
                continue
            sock, _ = self.listening.accept()
            sock.settimeout(PATIENCE_S)
            if self.context is not None:
                sock = self.context.wrap_socket(sock, server_side=True)
            hello = admit(sock, self.token, lambda hello: "")
            process = started[int(str(hello["name"]).partition(".")[0])]
            host = hosts[str(hello["name"])] = Host(process, int(hello["pid"]), Link(sock), node)
            self.hosts.append(host)
            for number, job in self.jobs.items():
                host.link.send(Word.JOB, number, job.manifest)
        if hosts:
            self.hosts[-len(hosts) :] = [hosts[name] for name in sorted(hosts)]  # not as they came
        return self.hosts[len(self.hosts) - len(hosts) :]

    def _start_host(self, way: dict[str, Any], code: str) -> "subprocess.Popen[bytes] | Forked":
        if self.warm is not None:
            return self.warm.start(way, code)
        return start_host(way, ("-P", "-c", code))

    def announce(self, number: int, job: Packed, *hosts: Host) -> None:
        self.jobs[number] = job
        for host in hosts or self.hosts:
            host.link.send(Word.JOB, number, job.manifest)

    def forget(self, number: int) -> None:
        del self.jobs[number]
        for host in self.hosts:
            host.link.send(Word.FORGET, number)

    def give(self, host: Host, digest: str) -> None:
        part = next(job.parts[digest] for job in self.jobs.values() if digest in job.parts)
        host.link.send(Word.PART, 0, digest.encode(), [part])

    def lose(self, host: Host) -> None:
        """As the receiver does with one that was silent."""
        host.is_gone = True
        host.link.close()

    def turn(self, timeout_s: float = 0.05) -> None:
        """Hear what there is, send what goes, say that all is well."""
        self.at_each_turn()
        poll = select.poll()
        living = {host.link.fileno(): host for host in self.hosts if not host.is_gone}
        for fd, host in living.items():
            poll.register(fd, select.POLLIN | (select.POLLOUT if host.link.has_unsent else 0))
        for fd, _ in poll.poll(timeout_s * 1000):
            host = living[fd]
            try:
                host.link.flush()
                while (message := host.link.receive_nowait()) is not None:
                    self._take_in(host, message)
            except ConnectionLost:
                self.lose(host)
        if time.monotonic() - self._spoke_s > BEAT_S:
            self._spoke_s = time.monotonic()
            for host in self.hosts:
                if not host.is_gone:
                    host.link.send(Word.BEAT)

    def _take_in(self, host: Host, message: Message) -> None:
        head = bytes(message.head)
        if message.kind == Word.BEAT:
            host.num_beats += 1
        elif message.kind == Word.WANT:
            if message.lane in self.jobs:
                for digest in control.decode(head).of:
                    host.asked.append(digest)
                    if self.gives(host, digest):
                        self.give(host, digest)
        else:
            host.said.append((message.kind, message.lane, head))

    def until(self, is_met: Callable[[], bool], what: str = "") -> float:
        """Seconds that it took."""
        began_s = time.monotonic()
        while not is_met():
            said = [(host.pid, host.is_gone, host.said[:9]) for host in self.hosts]
            assert time.monotonic() - began_s < PATIENCE_S, (what, said)
            self.turn()
        return time.monotonic() - began_s

    def until_ready(self, number: int, *hosts: Host) -> float:
        def is_told(host: Host) -> bool:
            assert not host.words(Word.CANNOT, number), host.said
            return bool(host.words(Word.READY, number))

        return self.until(lambda: all(is_told(h) for h in hosts or self.hosts), f"READY {number}")

    @property
    def asked(self) -> list[str]:
        """All digests that were asked for, by whomever."""
        return [digest for host in self.hosts for digest in host.asked]

    def close(self) -> None:
        for host in self.hosts:
            with contextlib.suppress(ProcessLookupError):
                os.kill(host.pid, signal.SIGCONT)
            if not host.is_gone:
                host.link.close()
            assert host.process.stdin is not None
            with contextlib.suppress(OSError):
                host.process.stdin.close()
        for process in dict.fromkeys(host.process for host in self.hosts):  # each takes a moment
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if isinstance(process, Forked):
                process.close()
        self.listening.close()


@contextlib.contextmanager
def one_trainer(
    num: int, is_tls: bool = False, warm: WarmHosts | None = None, num_cpus: int = 1
) -> Iterator[OneTrainer]:
    made = OneTrainer(is_tls, warm)
    try:
        made.start_hosts(num, num_cpus=num_cpus)
        yield made
    finally:
        made.close()


__all__ = ["Flag", "Host", "OneTrainer", "Packed", "frame_of", "one_trainer", "packed"]
