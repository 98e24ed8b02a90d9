"""A link with a rate and a round trip, to a network namespace of its own.

    here -- veth -- a router's namespace, which delays -- veth -- there

`tc netem` delays where the kernel has it. Where not, this file does, as a process in the router's
namespace: netfilter hands it packets' headers (NFQUEUE, nfnetlink_queue), the packets stay in the
kernel. Each leaves when the link has sent those before it and half a round trip is over. No packet is
dropped. It costs a seventh of a core at 1 Gbit/s; packets that are copied out by a TUN device, a third.
Needs root, ip, and tc or iptables-legacy. Namespaces, link and process are gone at the end.
"""

import contextlib
import gc
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE, THERE = "10.213.79.1", "10.213.79.6"
ROUTER_NEAR, ROUTER_FAR = "10.213.79.2", "10.213.79.5"
NEAR_NET, FAR_NET = "10.213.79.0/30", "10.213.79.4/30"
NAME = f"stoker-far-{os.getpid()}"
ROUTER, END = f"{NAME}-router", f"sf{os.getpid() % 100_000}"


class FarLink(NamedTuple):
    """address: of the other end; how: what delays; pid: of the process that does, 0: the kernel."""

    address: str
    how: str
    pid: int

    def there(self, *words: str) -> list[str]:
        """The command that runs these words at the other end."""
        return ["ip", "netns", "exec", NAME, *words]


def do(*words: str) -> None:
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr.strip()}")


@contextlib.contextmanager
def far_link(bits_per_s: float, round_trip_s: float) -> Iterator[FarLink]:
    """bits_per_s: of either direction, headers included, Ethernet's too."""
    try:
        _lay()
        with _delayed(bits_per_s, round_trip_s / 2) as (how, pid):
            yield FarLink(THERE, how, pid)
    finally:
        for name in (NAME, ROUTER):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _lay() -> None:
    for name in (NAME, ROUTER):
        do("ip", "netns", "add", name)
        do("ip", "-n", name, "link", "set", "lo", "up")
    do("ip", "link", "add", END, "type", "veth", "peer", "name", "near", "netns", ROUTER)
    do("ip", "-n", NAME, "link", "add", "end", "type", "veth", "peer", "name", "far", "netns", ROUTER)  # fmt: skip
    for where, device, address in (
        ([], END, HERE), (["-n", ROUTER], "near", ROUTER_NEAR),
        (["-n", ROUTER], "far", ROUTER_FAR), (["-n", NAME], "end", THERE),
    ):  # fmt: skip
        do("ip", *where, "addr", "add", f"{address}/30", "dev", device)
        do("ip", *where, "link", "set", device, "up")
    do("ip", "route", "add", FAR_NET, "via", ROUTER_NEAR)
    # Linux's default, and so that of most servers; this machine's may be another.
    do("ip", "-n", NAME, "route", "add", NEAR_NET, "via", ROUTER_FAR, "congctl", "cubic")
    do("ip", "netns", "exec", ROUTER, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")


@contextlib.contextmanager
def _delayed(bits_per_s: float, delay_s: float) -> Iterator[tuple[str, int]]:
    if _has_netem(bits_per_s, delay_s):
        yield "netem", 0
        return
    for number, device in enumerate(("near", "far")):
        rule = ("-A", "FORWARD", "-i", device, "-j", "NFQUEUE", "--queue-num", str(number))
        do("ip", "netns", "exec", ROUTER, "iptables-legacy", "-t", "mangle", *rule)
    words = [sys.executable, str(Path(__file__)), str(bits_per_s), str(delay_s)]
    command = ["ip", "netns", "exec", ROUTER, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            if process.stdout.readline() != b"ready\n":
                raise SystemExit("no packets are delayed here: is there nfnetlink_queue?")
            yield "nfqueue", process.pid
        finally:
            process.kill()  # it may be busy, and holds nothing


def _has_netem(bits_per_s: float, delay_s: float) -> bool:
    """Have the kernel delay, if it can."""
    netem = ["netem", "delay", f"{delay_s * 1e3}ms", "rate", f"{bits_per_s:.0f}bit"]
    adds = (
        ["tc", "-n", ROUTER, "qdisc", "add", "dev", device, "root", *netem, "limit", "100000"]
        for device in ("near", "far")
    )
    return all(subprocess.run(each, capture_output=True).returncode == 0 for each in adds)


# -- the process that delays ---------------------------------------------------------------------

# It looks so often at what has come, not at each packet: 0.5 ms cost a third of what looking at once does.
TICK_S = 0.0005
# Found late by half of a tick on average, and by what waking takes; measured by connecting: 10.0 ms.
LATE_S = 0.00035
SEGMENT_NBYTES, HEADERS_NBYTES, FRAME_NBYTES = 1448, 52, 14  # IPv4, TCP with timestamps; Ethernet
SEEN_NBYTES = 40  # of each packet
MAX_PACKETS = 100_000

# Source: linux/netfilter/nfnetlink_queue.h, linux/netlink.h
_NETFILTER, _NO_ENOBUFS, _SOL_NETLINK, _RCVBUFFORCE = 12, 5, 270, 33
_PACKET, _CONFIG, _VERDICT_BATCH = 0, 2, 3
_REQUEST, _ACK = 1, 4
_CFG_CMD, _CFG_PARAMS, _CFG_MAXLEN, _CFG_MASK, _CFG_FLAGS, _VERDICT_HDR = 1, 2, 3, 4, 5, 2
_BIND, _COPY_PACKET, _GSO, _ACCEPT = 1, 2, 1 << 2, 1


def _attribute(kind: int, layout: str, *values: int) -> bytes:
    body = struct.pack(layout, *values)
    return struct.pack("HH", len(body) + 4, kind) + body + bytes(-len(body) % 4)


def _message(kind: int, queue: int, flags: int, *attributes: bytes) -> bytes:
    body = struct.pack("!BBH", 0, 0, queue) + b"".join(attributes)
    return struct.pack("IHHII", 16 + len(body), 3 << 8 | kind, flags, 0, 0) + body


class Direction:
    """Packets of one direction, which wait in the kernel: their numbers, and when each is due."""

    def __init__(self, queue: int, bytes_per_s: float, delay_s: float) -> None:
        self._queue, self._bytes_per_s, self._delay_s = queue, bytes_per_s, delay_s
        self._waiting: deque[tuple[float, int]] = deque()
        self._free_at_s = 0.0  # the link has sent all before
        self._buffer = bytearray(4096)
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER)
        self.socket.setsockopt(socket.SOL_SOCKET, _RCVBUFFORCE, 16 << 20)
        self.socket.setsockopt(_SOL_NETLINK, _NO_ENOBUFS, 1)
        self._configure(_attribute(_CFG_CMD, "!BBH", _BIND, 0, 0))
        self._configure(
            _attribute(_CFG_PARAMS, "!IB", SEEN_NBYTES, _COPY_PACKET),
            _attribute(_CFG_MAXLEN, "!I", MAX_PACKETS),
            _attribute(_CFG_MASK, "!I", _GSO),
            _attribute(_CFG_FLAGS, "!I", _GSO),
        )
        self.socket.setblocking(False)

    def _configure(self, *attributes: bytes) -> None:
        self.socket.send(_message(_CONFIG, self._queue, _REQUEST | _ACK, *attributes))
        (code,) = struct.unpack_from("i", self.socket.recv(4096), 16)
        if code:
            raise OSError(-code, os.strerror(-code))

    def take(self, now_s: float) -> None:
        """Note what has come."""
        free_at_s = max(self._free_at_s, now_s)
        while True:
            try:
                end = self.socket.recv_into(self._buffer)
            except BlockingIOError:
                break
            (number,) = struct.unpack_from("!I", self._buffer, 24)
            (nbytes,) = struct.unpack_from("!H", self._buffer, end - SEEN_NBYTES + 2)
            free_at_s += sent_nbytes(nbytes) / self._bytes_per_s
            self._waiting.append((free_at_s + self._delay_s, number))
        self._free_at_s = free_at_s

    def let_go(self, now_s: float) -> float | None:
        """Let pass what is due. Returns when the next one is; None: there is none."""
        last = None
        while self._waiting and self._waiting[0][0] <= now_s + TICK_S / 2:
            last = self._waiting.popleft()[1]
        if last is not None:  # and all before it
            verdict = _attribute(_VERDICT_HDR, "!II", _ACCEPT, last)
            self.socket.send(_message(_VERDICT_BATCH, self._queue, _REQUEST, verdict))
        return self._waiting[0][0] if self._waiting else None


def sent_nbytes(nbytes: int) -> int:
    """Bytes on the wire of an IP packet, which may be as large as many segments. Pure."""
    num_segments = max(1, -(-(nbytes - HEADERS_NBYTES) // SEGMENT_NBYTES))
    return nbytes + (num_segments - 1) * HEADERS_NBYTES + num_segments * FRAME_NBYTES


def delay(bits_per_s: float, delay_s: float) -> None:
    """Until stdin ends."""
    both = [Direction(queue, bits_per_s / 8, delay_s - LATE_S) for queue in (0, 1)]
    sockets = [each.socket for each in both]
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))  # as a link, which waits for no core
    gc.disable()
    print("ready", flush=True)
    while True:
        now_s = time.monotonic()
        for each in both:
            each.take(now_s)
        due_s = [at_s for each in both if (at_s := each.let_go(now_s)) is not None]
        if due_s:
            time.sleep(TICK_S)
        else:
            ready, _, _ = select.select([*sockets, sys.stdin], (), ())
            if sys.stdin in ready:
                return


if __name__ == "__main__":
    delay(*map(float, sys.argv[1:]))
