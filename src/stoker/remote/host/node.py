"""Shares parts of jobs among a run's hosts on one machine, which receives and holds each once.

    trainer --part--> keeper --bundle, a descriptor--> follower
                        <------- wants a job ---------

The host that binds a name, which only holders of the run's token can know, is the part keeper: it
asks the trainer for parts, and hands sealed bundles on. All others follow it.
Promise: a keeper that dies is replaced at once, one that is silent for SILENT_S, stopped or cut
off, is left for another; if none can be found a host asks the trainer itself.
Owner: the host's one thread.
"""

import contextlib
import functools
import hashlib
import hmac
import json
import os
import socket
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from stoker.clock import now_s
from stoker.local.sizing import available_nbytes, memory_nbytes
from stoker.remote.host.parts import Bundle, Coming
from stoker.remote.net.link import BEAT_S, Garbled
from stoker.remote.net.ship import Manifest

# A keeper that lives says so every BEAT_S. Less than what the trainer waits for a host.
SILENT_S = 2.0
MAX_GENERATIONS = 8  # keepers that were silent; then each host is one for itself
MAX_ENDS = 8  # of keepers, since one of them gave something
MESSAGE_NBYTES = 16 << 10
# Of the machine's memory, for parts of jobs that have ended: the next epoch's are often the same.
KEPT_FRAC = 1 / 8
# Of the memory that is free, for one job. Its workers need some, and so may others.
JOB_FRAC = 1 / 2
_CREDENTIALS = struct.Struct("iII")  # pid, uid, gid. Source: unix(7), SO_PEERCRED


class Needs(NamedTuple):
    """A node's callbacks to its host. watch, unwatch: poll a descriptor, or not; ask: the trainer
    for parts; begin: a job, all of whose parts are here; refuse: a job, with the reason."""

    watch: Callable[[int, Callable[[], None]], None]
    unwatch: Callable[[int], None]
    ask: Callable[[int, list[str]], None]
    begin: Callable[[int], None]
    refuse: Callable[[int, str], None]


class Node:
    """A host as part keeper or follower of others. token: of the run; name: of the machine."""

    def __init__(self, token: bytes, name: str, needs: Needs) -> None:
        self._token = token
        self._machine = name
        self._needs = needs
        self._jobs: dict[int, Manifest] = {}
        self._begun: set[int] = set()
        self._refused: dict[int, str] = {}
        self._held: list[Bundle] = []  # used last, last
        self._coming: list[Coming] = []
        self._generation = self._num_ends = 0
        self._listening: socket.socket | None = None  # of a keeper
        self._keeper: socket.socket | None = None  # of a follower
        self._is_seeking = False  # neither
        self._heard_s = self._spoke_s = now_s()  # the keeper was; as keeper
        self._followers: dict[int, socket.socket] = {}
        self._waiting: dict[int, set[int]] = {}  # by job: which followers want it
        self._meet()

    # -- jobs --------------------------------------------------------------------------------------

    def add(self, number: int, manifest: Manifest) -> None:
        """Add a job that was announced: it begins, here, once all its parts are here."""
        self._jobs[number] = manifest
        self._seek(number)

    def forget(self, number: int) -> None:
        """Drop a job that has ended, and free its parts but for what may be wanted again."""
        if self._jobs.pop(number, None) is None:
            return
        self._begun.discard(number)
        self._refused.pop(number, None)
        self._waiting.pop(number, None)
        for coming in [coming for coming in self._coming if coming.job == number]:
            coming.drop()  # they were asked for too late: the trainer sends no more of it
            self._coming.remove(coming)
        self._let_go(0 if self._keeper else int(KEPT_FRAC * memory_nbytes()))
        for other in self._jobs:
            self._seek(other)

    def pieces(self, number: int) -> list[memoryview]:
        """Map the parts of a job that has begun, in the manifest's order, as private copies.

        Equal parts have memory of their own each: the job may write to one of them. Raises OSError.
        """
        digests = [part.digest for part in self._jobs[number].parts]
        return [next(b for b in self._held if digest in b).map(digest) for digest in digests]

    def _missing(self, number: int) -> list[str]:
        digests = dict.fromkeys(part.digest for part in self._jobs[number].parts)
        return [digest for digest in digests if not any(digest in b for b in self._held)]

    def _seek(self, number: int) -> None:
        """Take a job's next step: begin it, ask the part keeper for it, or ask the trainer."""
        if number in self._begun or number in self._refused:
            return
        missing = self._missing(number)
        if not missing:
            self._begun.add(number)
            self._use(number)
            self._needs.begin(number)
            self._give(number)
        elif self._keeper is not None:
            self._send(self._keeper, {"want": number})
        elif not self._is_seeking:
            self._ask(number, missing)

    def _use(self, number: int) -> None:
        digests = {part.digest for part in self._jobs[number].parts}
        self._held.sort(key=lambda bundle: not bundle.digests.isdisjoint(digests))

    # -- parts from the trainer ----------------------------------------------------------------------

    def _ask(self, number: int, missing: list[str]) -> None:
        wanted = [digest for digest in missing if not any(digest in c for c in self._coming)]
        parts = {part.digest: part for part in self._jobs[number].parts}
        if not wanted:
            return
        why = self._why_too_large(number, sum(parts[digest].nbytes for digest in wanted))
        if why:
            self._refuse(number, why)
            return
        # The stream is another at every epoch: it shall not keep what is not, nor be kept by it.
        stream = self._jobs[number].parts[0].digest
        for bundle in ([d for d in wanted if d == stream], [d for d in wanted if d != stream]):
            if bundle:
                try:
                    self._coming.append(Coming(number, [parts[digest] for digest in bundle]))
                except OSError as error:
                    self._refuse(number, str(error))
                    return
        self._needs.ask(number, wanted)

    def _why_too_large(self, number: int, nbytes: int) -> str:
        """Say why a job is too large; empty if not. Its stream becomes objects at every host."""
        needed = nbytes + self._jobs[number].parts[0].nbytes * (1 + len(self._followers))
        if needed > JOB_FRAC * available_nbytes():
            self._let_go(0)
        free = available_nbytes()
        if needed <= JOB_FRAC * free:
            return ""
        return (
            f"it takes {needed / 1e9:.1f} GB there, of which {free / 1e9:.1f} GB are free and half "
            "of that may be a job's: let the dataset read its samples from files in place of "
            "holding them, or give that machine more memory"
        )

    def _refuse(self, number: int, why: str) -> None:
        self._refused[number] = why
        self._needs.refuse(number, why)
        self._give(number)

    def room(self, digest: str, nbytes: int) -> memoryview:
        """Return the memory for a part that comes. Raises Garbled if it was not asked for."""
        for coming in self._coming:
            if digest in coming and (view := coming.room(digest, nbytes)) is not None:
                return view
        raise Garbled("a part that nobody asked for")

    def took(self, digest: str) -> None:
        """Take a part that has come, and whose checksum was right."""
        coming = next(coming for coming in self._coming if digest in coming)
        coming.took(digest)
        if coming.is_whole:
            self._coming.remove(coming)
            self._held.append(coming.seal())
            for number in [number for number in self._jobs if not self._missing(number)]:
                self._seek(number)

    def _let_go(self, kept_nbytes: int) -> None:
        """Close bundles that no job uses, the longest unused first, all but so many bytes."""
        used = {part.digest for manifest in self._jobs.values() for part in manifest.parts}
        spare = [bundle for bundle in self._held if bundle.digests.isdisjoint(used)]
        while spare and sum(bundle.nbytes for bundle in spare) > kept_nbytes:
            bundle = spare.pop(0)
            self._held.remove(bundle)
            bundle.close()

    # -- who is the keeper -----------------------------------------------------------------------------

    def _name(self) -> bytes:
        text = f"parts {self._generation} {self._machine}".encode()
        return b"\0stoker-" + hmac.new(self._token, text, hashlib.sha256).hexdigest()[:32].encode()

    def _meet(self) -> None:
        """Become the part keeper, or connect to it; else try again in a moment."""
        self._is_seeking = False
        if self._generation == MAX_GENERATIONS:
            return
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.setblocking(False)
        try:
            sock.bind(self._name())
            sock.listen(128)
            self._listening = sock
            self._needs.watch(sock.fileno(), self._accept)
            return
        except OSError:  # there is one
            pass
        try:
            sock.connect(self._name())
            if not _is_ours(sock):
                raise OSError
        except OSError:  # it is about to listen, or has ended just now
            sock.close()
            self._is_seeking = True
            return
        self._keeper, self._heard_s = sock, now_s()
        self._needs.watch(sock.fileno(), self._hear_keeper)

    def check_timeouts(self) -> None:
        """Check timeouts: look again for a part keeper, leave a silent one, send heartbeats."""
        now = now_s()
        if self._is_seeking:
            self._meet()
            self._settle()
        if self._keeper is not None and now - self._heard_s > SILENT_S:
            self._hear_keeper()  # it may be this host that was not there
        if (self._is_seeking or self._keeper is not None) and now - self._heard_s > SILENT_S:
            self._generation += 1
            self._leave_keeper()
        if self._followers and now - self._spoke_s > BEAT_S:
            self._spoke_s = now
            for follower in tuple(self._followers.values()):
                self._say(follower, {})

    def _leave_keeper(self) -> None:
        if self._keeper is not None:
            self._needs.unwatch(self._keeper.fileno())
            self._keeper.close()
            self._keeper = None
        self._heard_s = now_s()
        self._meet()
        self._settle()

    def _settle(self) -> None:
        if not self._is_seeking:
            for number in tuple(self._jobs):
                self._seek(number)

    # -- as a follower ---------------------------------------------------------------------------------

    def _hear_keeper(self) -> None:
        """Read the part keeper's messages. Raises nothing: a faulty one is left for another."""
        keeper = self._keeper
        while keeper is not None and keeper is self._keeper:
            try:
                said, fd = _receive(keeper)
                self._heard_s = now_s()
                self._take_in(said, fd)
            except BlockingIOError:
                return
            except EOFError:
                self._num_ends += 1
                self._generation += self._num_ends > MAX_ENDS
                self._leave_keeper()
            except (OSError, ValueError, KeyError, TypeError):
                self._generation += 1
                self._leave_keeper()

    def _take_in(self, said: dict[str, Any], fd: int | None) -> None:
        if fd is not None:
            self._num_ends = 0
            bundle = Bundle(fd)
            if all(any(digest in held for held in self._held) for digest in bundle.digests):
                bundle.close()
            else:
                self._held.append(bundle)
        number = said.get("job")
        if number not in self._jobs:
            self._let_go(0)  # it was forgotten meanwhile
        elif "cannot" in said:
            self._refused[number] = said["cannot"]
            self._needs.refuse(number, said["cannot"])
        elif not self._missing(number):
            self._seek(number)
        elif said["is_last"]:
            raise ValueError("a job without all of its parts")

    # -- as the keeper -----------------------------------------------------------------------------------

    def _accept(self) -> None:
        assert self._listening is not None
        try:
            sock, _ = self._listening.accept()
        except OSError:
            return
        if not _is_ours(sock):
            sock.close()
            return
        sock.setblocking(False)
        self._followers[sock.fileno()] = sock
        self._needs.watch(sock.fileno(), functools.partial(self._hear_follower, sock))

    def _hear_follower(self, sock: socket.socket) -> None:
        try:
            said, fd = _receive(sock)
            if fd is not None:
                os.close(fd)
            number = int(said["want"])
        except BlockingIOError:
            return
        except (EOFError, OSError, ValueError, KeyError, TypeError):
            self._lose_follower(sock)
            return
        self._waiting.setdefault(number, set()).add(sock.fileno())
        self._give(number)

    def _give(self, number: int) -> None:
        """Send followers that wait for a job its bundles, or why it is refused."""
        if number in self._refused:
            for fd in self._waiting.pop(number, ()):
                self._say(self._followers[fd], {"job": number, "cannot": self._refused[number]})
        elif number in self._begun:
            digests = {part.digest for part in self._jobs[number].parts}
            bundles = [b for b in self._held if not b.digests.isdisjoint(digests)]
            for fd in self._waiting.pop(number, ()):
                for bundle in bundles:
                    said = {"job": number, "is_last": bundle is bundles[-1]}
                    if fd in self._followers:
                        self._say(self._followers[fd], said, bundle.fd)

    def _say(self, follower: socket.socket, said: dict[str, Any], *fds: int) -> None:
        if not self._send(follower, said, *fds):
            self._lose_follower(follower)  # it does not listen: it may come back

    def _send(self, sock: socket.socket, said: dict[str, Any], *fds: int) -> bool:
        try:
            socket.send_fds(sock, [json.dumps(said).encode()], fds, socket.MSG_NOSIGNAL)
        except OSError:
            return False
        return True

    def _lose_follower(self, sock: socket.socket) -> None:
        self._needs.unwatch(sock.fileno())
        del self._followers[sock.fileno()]
        for waiting in self._waiting.values():
            waiting.discard(sock.fileno())
        sock.close()

    # -- in a job's process ------------------------------------------------------------------------------

    def abandon(self) -> None:
        """Close the sockets in a forked child: the other hosts must see this host's own end."""
        for sock in (self._listening, self._keeper, *self._followers.values()):
            if sock is not None:
                sock.close()

    def close(self) -> None:
        """Close all bundles in a forked child that has its pieces, so that it keeps none alive."""
        for bundle in self._held:
            with contextlib.suppress(OSError):
                bundle.close()
        for coming in self._coming:
            coming.abandon()


def _receive(sock: socket.socket) -> tuple[dict[str, Any], int | None]:
    """Receive one message. Raises EOFError, BlockingIOError, OSError, ValueError."""
    try:
        data, fds, _, _ = socket.recv_fds(sock, MESSAGE_NBYTES, 1, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:  # it ended before it had read all
        data, fds = b"", []
    if not data:
        raise EOFError
    try:
        said = json.loads(data)
        if not isinstance(said, dict):
            raise ValueError("no message")
    except ValueError:
        for fd in fds:
            os.close(fd)
        raise
    return said, fds[0] if fds else None


def _is_ours(sock: socket.socket) -> bool:
    """Whether a process of this user is at the other end."""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(data)
    return bool(uid == os.getuid())
