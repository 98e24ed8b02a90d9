"""Decides which machine is asked for a block before its origin is.

Each block has a home among the machines that serve its mount: the same for all of them, and another for
each 4 MiB, so that the origin is asked for it once, however many machines read it (rendezvous hashing;
Thaler and Ravishankar, IEEE/ACM Transactions on Networking 6, 1998). A machine that has failed is left out
for a while, by who saw it fail.
Any thread may call it.
"""

import threading
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from stoker.clock import now_s
from stoker.storage.origins import UNKNOWN, Again, Answer, Entry, Get, Piece, Source
from stoker.storage.origins.between import Dial, Machine, checked, entry_of
from stoker.storage.reading.file import MERGED_BLOCKS, File

SILENT_S = 2.0  # then the origin is asked
LEFT_OUT_S, MOST_LEFT_OUT_S = 30.0, 600.0  # twice as long each time
_MASK, _ODD = (1 << 64) - 1, 0x9E3779B97F4A7C15  # Knuth's multiplier


class Member(NamedTuple):
    """A machine, as the trainer tells of it. urls: of its mounts; certificate: PEM; empty: no TLS."""

    name: str
    node: str
    address: str
    port: int
    certificate: str
    urls: Sequence[str]


class Peer:
    """Another machine. Source of blocks, as an origin is; its answers are those of `read_for_peer`."""

    def __init__(self, member: Member, dial: Dial) -> None:
        self.member, self.salt = member, _hash(member.name)
        self.machine = Machine(dial, SILENT_S)
        self.left_out_until_s, self.left_out_s = 0.0, LEFT_OUT_S


class PeerSource:
    """Files of one mount, read from a peer."""

    def __init__(self, peer: Peer, url: str) -> None:
        self.peer, self._url = peer, url

    def get(
        self, path: str, start: int, end: int, known: Entry, hint: Entry | None = None
    ) -> Get | None:
        asked = {"url": self._url, "path": path, "start": start, "end": end, "known": known}
        return self.peer.machine.get("read", end - start, asked)

    def got(
        self,
        answer: Answer,
        path: str,
        start: int,
        end: int,
        known: Entry,
        hint: Entry | None = None,
    ) -> Piece:
        body = checked(answer).body
        if known.nbytes == UNKNOWN:
            known = entry_of(answer)
            if not known.tag and not known.mtime_ns:
                raise Again("nothing tells whether these are the origin's bytes now")
        if len(body) != min(end, known.nbytes) - start:
            raise Again(f"{len(body)} bytes came")
        return Piece(known, body)


class Homes:
    def __init__(self, name: str) -> None:
        """name: of this machine's storage process."""
        self._own = name, _hash(name)
        self._lock = threading.Lock()  # guards changes of what lies below
        self._peers: dict[str, Peer] = {}
        self._of_url: dict[str, tuple[PeerSource, ...]] = {}

    def add(self, member: Member, dial: Callable[[Member], Any]) -> None:
        """Take a machine in. dial: connects to it."""
        if member.name == self._own[0]:
            return
        with self._lock:
            self._peers[member.name] = Peer(member, lambda: dial(member))
            self._sort()

    def remove(self, name: str) -> None:
        with self._lock:
            self._peers.pop(name, None)
            self._sort()

    def clear(self) -> None:
        with self._lock:
            self._peers.clear()
            self._sort()

    def _sort(self) -> None:
        found: dict[str, list[PeerSource]] = {}
        for peer in self._peers.values():
            for url in peer.member.urls:
                found.setdefault(url, []).append(PeerSource(peer, url))
        self._of_url = {url: tuple(sources) for url, sources in found.items()}

    def source_of(self, file: File, first: int) -> Source | None:
        """Return who has to be asked first for a block; None if that is the origin."""
        sources = self._of_url.get(file.origin.identity)
        if not sources or file.hint is not None:  # a hint is compared with the origin's own
            return None
        known = file.known
        if known.nbytes != UNKNOWN and not known.tag and not known.mtime_ns:
            return None  # nothing tells that theirs are the bytes that were listed here
        number = _hash(f"{file.origin.identity}\0{file.path}\0{first // MERGED_BLOCKS}")
        best, best_weight, now = None, _weight(number, self._own[1]), now_s()
        for source in sources:
            weight = _weight(number, source.peer.salt)
            if weight > best_weight and source.peer.left_out_until_s < now:
                best, best_weight = source, weight
        return best

    def has_failed(self, source: Source) -> None:
        """Note that a peer has not answered."""
        if isinstance(source, PeerSource):
            peer = source.peer
            if peer.left_out_until_s < now_s():  # else it is known
                peer.left_out_until_s = now_s() + peer.left_out_s
                peer.left_out_s = min(2 * peer.left_out_s, MOST_LEFT_OUT_S)


def _hash(text: str) -> int:
    digest = blake2b(text.encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _weight(number: int, salt: int) -> int:
    mixed = (number ^ salt) * _ODD & _MASK
    return (mixed ^ mixed >> 32) * _ODD & _MASK
