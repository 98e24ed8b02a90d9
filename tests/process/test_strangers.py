"""A receiver whose port is known to strangers: it neither dies nor grows, and its hosts go on.

Nobody here holds the token; the fleet is of plain processes, once as on one machine and once in
TLS as between machines.
"""

import contextlib
import os
import random
import select
import signal
import socket
import ssl
import struct
from pathlib import Path

import pytest

from stoker.clock import Deadline
from stoker.remote.net.auth import Stranger, introduce, make_token, versions
from stoker.remote.trainer.fleet import Fleet
from stoker.remote.trainer.listener import HANDSHAKE_S, MAX_STRANGERS, MAX_TOLD
from tests.conftest import descendants

PATIENCE_S = 60.0
GROWTH_NBYTES = 6 << 20
SETTINGS = {
    "cluster": "processes:1",
    "workers": None,
    "no_tls": False,
    "allow_mismatch": False,
    "folder": None,
}
# Where the receiver listens: in TLS wherever hosts may come from elsewhere, as to a name.
PLAIN, TLS = None, "localhost"
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset


class Besieged:
    """A fleet with one host, and what a stranger can do at its port."""

    def __init__(self, bind: str | None) -> None:
        self.said: list[str] = []
        self.is_tls = bind is not None
        settings = {**SETTINGS, "bind": bind, "versions": versions()}
        self.fleet = Fleet(settings, self.said.append)
        self.receiver = self.fleet._process.pid
        self.wait_joined(1)
        self.port = listening_port(self.receiver)

    def wait_joined(self, num_joined: int) -> None:
        """Until so many hosts have joined since the beginning, and one is there."""
        fleet = self.fleet
        fleet.wait(
            lambda: fleet.num_joined >= num_joined and fleet.num_hosts == 1, Deadline(PATIENCE_S)
        )
        assert not fleet.is_gone, "the receiver died"
        assert (fleet.num_joined, fleet.num_hosts) == (num_joined, 1), self.said

    def host(self) -> int:
        (pid,) = (
            pid
            for pid in descendants(self.receiver)
            if "stoker.remote.host.start" in Path(f"/proc/{pid}/cmdline").read_text()
        )
        return pid

    def nbytes(self) -> int:
        """Memory of the receiver, resident. Source: proc(5), statm."""
        pages = int(Path(f"/proc/{self.receiver}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)

    def shake(self, sock: socket.socket) -> socket.socket:
        """Up to the greeting: a stranger that believes any certificate."""
        if not self.is_tls:
            return sock
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(sock)

    def replace_host(self) -> None:
        """Kill the host: another must be let in."""
        num_joined = self.fleet.num_joined
        os.kill(self.host(), signal.SIGKILL)
        self.wait_joined(num_joined + 1)


def listening_port(pid: int) -> int:
    """Source: proc(5), /proc/net/tcp; state 0A listens, and its inode is one of the process's."""
    inodes = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(str(fd.readlink()).removeprefix("socket:[").removesuffix("]"))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    (port,) = (int(r[1].split(":")[1], 16) for r in rows if r[3] == "0A" and r[9] in inodes)
    return port


@pytest.fixture(params=[PLAIN, TLS], ids=["plain", "TLS"])
def besieged(request):
    """And afterwards all is as it was, and a new host is let in."""
    made = Besieged(request.param)
    try:
        strangers_of_all_kinds(made)  # the memory that the first of them cost is kept for the next
        before_nbytes, host, num_joined = made.nbytes(), made.host(), made.fleet.num_joined
        yield made
        made.fleet.hear()
        assert not made.fleet.is_gone, "the receiver died"
        assert made.nbytes() - before_nbytes < GROWTH_NBYTES
        if made.fleet.num_joined == num_joined:
            assert (made.host(), made.fleet.num_lost, made.fleet.num_hosts) == (host, 0, 1)
            made.replace_host()
    finally:
        made.fleet.close()


def only(how):
    return pytest.mark.parametrize(
        "besieged", [how], indirect=True, ids=["TLS" if how else "plain"]
    )


def wait_closed(sock: socket.socket) -> int:
    """Until the receiver hangs up; how many bytes it had said before."""
    nbytes = 0
    try:
        while piece := sock.recv(1 << 16):
            nbytes += len(piece)
    except ConnectionError:
        pass
    return nbytes


GARBAGE = {
    "nothing": b"",
    "another protocol": b"GET / HTTP/1.1\r\nHost: trainer\r\n\r\n" + bytes(100),
    "a hello of 4 GiB": b"\xff" * 100_000,
    "a hello without a proof": bytes(32) + struct.pack("<I", 2) + b"{}" + bytes(32),
    "a pickle": bytes(32) + struct.pack("<I", 40) + b"cos\nsystem\n(S'exit 1'\ntR." + bytes(100),
    "the longest hello": bytes(32) + struct.pack("<I", 16 << 10) + bytes((16 << 10) + 32),
    "noise": random.Random(0).randbytes(1 << 20),
}


def say(sock: socket.socket, words: bytes) -> None:
    """And nothing more. The receiver may have hung up before it has heard all."""
    with contextlib.suppress(OSError):
        sock.sendall(words)
        sock.shutdown(socket.SHUT_WR)


def strangers_of_all_kinds(besieged: Besieged) -> None:
    for words in GARBAGE.values():
        with besieged.connect() as sock:
            say(sock, words)
            assert wait_closed(sock) <= 40
        with besieged.shake(besieged.connect()) as sock:
            assert len(sock.recv(100)) == 40, "greeted, and that is all that a stranger gets"
            with contextlib.suppress(OSError):
                sock.sendall(words)
        with besieged.connect() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            with contextlib.suppress(ConnectionError):
                sock.sendall(words)


@pytest.mark.few(1)
def test_garbage_changes_nothing(besieged):
    for _ in range(10):
        strangers_of_all_kinds(besieged)


@only(PLAIN)
def test_wrong_tokens_change_nothing_and_are_told_of_a_few_times(besieged):
    """So many that notes of each would fill the way to the trainer, who does not listen now."""
    token = make_token()
    for _ in range(400):
        with besieged.shake(besieged.connect()) as sock, pytest.raises((Stranger, ConnectionError)):
            introduce(sock, token, {"name": "x", "node": "y", **versions()})
    os.kill(besieged.host(), signal.SIGKILL)
    besieged.wait_joined(besieged.fleet.num_joined + 1)
    turned_away = [line for line in besieged.said if "turned away" in line]
    assert any("does not hold this run's token" in line for line in turned_away)
    assert len(turned_away) == len(set(turned_away)) <= MAX_TOLD


@pytest.mark.few(1)
def test_a_host_is_let_in_while_half_handshakes_hold_all_places_and_those_are_hung_up_on(besieged):
    """How soon: tests/unit/remote/test_listener.py."""
    with contextlib.ExitStack() as held:
        socks = [held.enter_context(besieged.connect()) for _ in range(MAX_STRANGERS)]
        for sock in socks:
            sock.sendall(b"\x16\x03")  # as TLS begins, or a nonce might
        besieged.replace_host()
        for sock in socks:
            wait_closed(sock)


@pytest.mark.full
@only(PLAIN)
def test_a_flood_beyond_the_limit_is_turned_away_at_once(besieged):
    with contextlib.ExitStack() as held:
        poll, by_fd, closed = select.poll(), {}, set()
        for num_more in range(4):  # not all at once: the kernel drops what waits to be accepted
            for _ in range(MAX_STRANGERS):
                sock = held.enter_context(besieged.connect())
                by_fd[sock.fileno()] = sock
                poll.register(sock, select.POLLIN)
            end = Deadline(HANDSHAKE_S / 2)
            while len(closed) < num_more * MAX_STRANGERS and (
                ready := poll.poll(1000 * end.left_s())
            ):
                for fd, _ in ready:
                    poll.unregister(fd)
                    said = b""
                    with contextlib.suppress(ConnectionError):
                        said = by_fd[fd].recv(100)
                    if not said:  # else it was greeted: one of those that are let in so far
                        closed.add(fd)
            assert len(closed) >= num_more * MAX_STRANGERS
    besieged.replace_host()


def test_what_lies_in_the_working_folder_is_not_imported_by_hosts(tmp_path, monkeypatch):
    """A job's own process has the script's sys.path, as it is told: a host has none of it."""
    for name in ("json", "xxhash", "socket", "hmac"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} of the working folder')")
    monkeypatch.chdir(tmp_path)
    made = Besieged(PLAIN)
    try:
        assert not made.fleet.num_lost
    finally:
        made.fleet.close()
