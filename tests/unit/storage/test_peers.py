"""Machines that read one origin: it is asked once for each block, and whatever a machine does, reads go on."""

import contextlib
import os
import socket
import threading

import pytest

from stoker.clock import Deadline
from stoker.remote.net.auth import Stranger, dial, make_token, pass_of
from stoker.remote.trainer.listener import Listener
from stoker.storage.archives import open_url
from stoker.storage.origins import Again, Denied, Piece
from stoker.storage.origins.between import Machine
from stoker.storage.peers import answering, homes, joining
from stoker.storage.peers.answering import Told
from stoker.storage.peers.homes import Homes
from stoker.storage.peers.joining import Joining, asked_of
from stoker.storage.reading.blocks import Blocks
from stoker.storage.reading.file import file_of
from stoker.storage.reading.memory import Memory
from stoker.storage.reading.stats import StorageStats
from stoker.storage.serving.mounted import Mounted
from stoker.storage.serving.tree import Tree
from tests.origin_server import OriginServer
from tests.unit.storage.fake_origin import FakeOrigin

FILES = {f"{k}.bin": os.urandom(10_000 + k) for k in range(40)} | {"big": os.urandom(9 << 20)}
LIMIT_S = 10.0


class Node:
    """One machine's storage process, without the kernel's part."""

    def __init__(self, name, origin, way, **limits):
        stats = StorageStats()
        self.homes, self.origin = Homes(name), origin
        limits = {"limit_s": 5.0, "on_found": self._found, **limits}
        self.blocks = Blocks(Memory(64 << 20, stats), None, stats, homes=self.homes, **limits)
        self.stats, self.gate = stats, threading.Event()
        self.gate.set()
        self.tree = Tree(origin, stats)
        self.mounted = Mounted("/at", origin, self.tree, self.blocks)
        self.joining = Joining(name, [origin.url], self.homes, self._answer, self.stats.as_json)
        self.joining.join({**way, "node": name})

    def _found(self, file):
        self.mounted.found(file)

    def _answer(self, what, asked, may_wait):
        if may_wait:
            self.gate.wait()
        elif not self.gate.is_set():
            return None
        _, path, start, end, known = asked_of(asked)
        piece = self.mounted.piece_for_peer(path, start, end, known, may_wait)
        return Told(bytes(piece.body), piece.known) if isinstance(piece, Piece) else piece

    def wait_peers(self, num):
        deadline = Deadline(LIMIT_S)
        while len(self.homes._peers) != num:
            assert not deadline.is_over(), self.homes._peers
            threading.Event().wait(0.01)

    def read(self, path):
        return self.mounted.read(path, 0, 16 << 20)

    def close(self):
        self.gate.set()
        self.blocks.close()
        self.joining.close()
        self.blocks._pool.shutdown()
        self.tree.close()
        for thread in self.tree.threads:
            thread.join()


@pytest.fixture(params=["tls", "plain"])
def way(request):
    """Of a run whose listener is there."""
    posted = []
    settings = {"no_tls": request.param == "plain", "allow_mismatch": False, "versions": {}}
    listener = Listener(settings, posted.append, lambda *_: None, lambda _: None)
    bound = "127.0.0.1"
    told = listener.open(bound, bound)
    if request.param == "tls":
        from stoker.remote.net.tls import make_certificate, server_context

        told["certificate"], key = make_certificate()
        listener._context = server_context(told["certificate"], key)
    stop = threading.Event()

    def own():
        listener._listening.settimeout(0.05)
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                listener.accept()
            while posted:
                posted.pop(0)()

    thread = threading.Thread(target=own)
    thread.start()
    yield {**told, "directory": listener.peers}
    stop.set()
    thread.join()
    listener._listening.close()


@pytest.fixture
def directory(way):
    return way["directory"]


@pytest.fixture
def nodes(way):
    made = []

    def make(names, **how):
        made.extend(Node(name, FakeOrigin(dict(FILES), **how), way) for name in names)
        for node in made:
            node.wait_peers(len(made) - 1)
        return made

    yield make
    for node in made:
        node.close()


def reads(nodes):
    return [each[1:] for node in nodes for each in node.origin.asked if each[0] == "read"]


@pytest.mark.parametrize("has_sizes", [True, False])
def test_the_origin_is_asked_once_for_each_block_whoever_reads(nodes, has_sizes):
    made = nodes("abc", has_sizes=has_sizes)
    for node in made:
        for path, data in FILES.items():
            assert node.read(path) == data
    asked = reads(made)
    # 9 MiB are three pieces; and the first of them two where it is asked for before the size is known.
    assert len(asked) == len(set(asked)) == len(FILES) + 2 + (not has_sizes)
    for node in made:
        assert node.stats.peer_nbytes > 0 and node.stats.remote_nbytes > 0
    total = sum(map(len, FILES.values()))
    assert sum(node.stats.remote_nbytes for node in made) == total
    assert sum(node.stats.peer_nbytes for node in made) == 2 * total


def test_the_trainer_is_told_what_machines_have_read(nodes, directory):
    made = nodes("ab")
    for node in made:
        for path in FILES:
            node.read(path)
    total = sum(map(len, FILES.values()))
    deadline = Deadline(LIMIT_S)
    while directory.totals().get("remote_nbytes", 0) + directory.totals().get("peer_nbytes", 0) != 2 * total:  # fmt: skip
        assert not deadline.is_over(), directory.totals()
        threading.Event().wait(0.05)
    assert directory.totals()["remote_nbytes"] == total
    made[0].joining.leave()
    made[1].wait_peers(0)
    assert directory.totals()["remote_nbytes"] == total  # what has gone has read it all the same


def test_machines_that_read_at_once_ask_once(nodes):
    made = nodes("abc")
    found = []

    def read(node):
        found.extend(node.read(path) == data for path, data in FILES.items())

    threads = [threading.Thread(target=read, args=(node,)) for node in made for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 9 * len(FILES) and all(found)
    assert len(reads(made)) == len(set(reads(made)))


def test_a_store_that_takes_longer_than_a_machine_may_be_silent_is_asked_once(nodes):
    one, other = nodes("ab")
    for node in (one, other):
        node.tree.folder("")
        node.origin.gate.clear()
    found = []

    def read(node):
        found.extend(node.read(path) == data for path, data in FILES.items())

    threads = [threading.Thread(target=read, args=(node,)) for node in (one, other)]
    for thread in threads:
        thread.start()
    # With no sign that they are at work, each is given up by then.
    threading.Event().wait(homes.SILENT_S + 2.0)
    for node in (one, other):
        node.origin.gate.set()
    for thread in threads:
        thread.join()
    assert len(found) == 2 * len(FILES) and all(found)
    assert len(reads([one, other])) == len(set(reads([one, other])))
    assert all(
        peer.left_out_until_s == 0.0 for node in (one, other) for peer in node.homes._peers.values()
    )


def test_machines_that_wait_for_each_other_have_connections_left_for_the_origin(way, tmp_path):
    """Each first wants what the other one is the home of: with no more than two requests at once, none
    would be left for what the other one waits for."""
    folder = tmp_path / "far"
    folder.mkdir()
    for path, data in FILES.items():
        (folder / path).write_bytes(data)
    server = OriginServer(folder)
    server.fault = lambda method, path, number: 0.02 if method == "GET" else None
    made = [Node(name, open_url(server.url), way, num_at_once=2) for name in "ab"]
    try:
        for node in made:
            node.wait_peers(1)
            node.tree.folder("")
        server.asked.clear()

        def by_home(node):
            def is_own(path):
                return (
                    node.homes.source_of(file_of(node.origin, path, node.tree.entry(path)), 0)
                    is None
                )

            return sorted(FILES, key=is_own)

        for node in made:
            for path in by_home(node):
                node.mounted.fetch_ahead(path)
        for node in made:
            for path in by_home(node):
                assert node.read(path) == FILES[path]
        peers = [peer for node in made for peer in node.homes._peers.values()]
        assert [peer.left_out_until_s for peer in peers] == [0.0, 0.0]  # none was taken for dead
        asked = [
            num for (how, path), num in server.asked.items() if how == "GET" and path != "/big"
        ]
        assert len(asked) == len(FILES) - 1 and set(asked) == {1}
        assert all(node.stats.peer_nbytes for node in made)
    finally:
        for node in made:
            node.close()
            node.origin.close()
        server.stop()


def test_a_machine_that_does_not_answer_costs_a_while_and_no_bytes(nodes, monkeypatch):
    monkeypatch.setattr(answering, "SAYS_FOR_S", 1.0)  # that it is at work
    one, other = nodes("ab")
    other.gate.clear()
    for path, data in FILES.items():
        assert one.read(path) == data
    assert one.stats.peer_nbytes == 0
    assert one.stats.remote_nbytes == sum(map(len, FILES.values()))


def test_a_machine_that_ends_is_asked_no_more(nodes):
    one, other, third = nodes("abc")
    other.joining.leave()
    one.wait_peers(1)
    third.wait_peers(1)
    for path, data in FILES.items():
        assert one.read(path) == data
    assert third.stats.remote_nbytes and not reads([other])


def test_a_machine_that_was_cut_off_joins_again(nodes, monkeypatch):
    monkeypatch.setattr(joining, "AGAIN_S", 0.05)
    one, other = nodes("ab")
    before = one.homes._peers["b"]
    directory = other.joining._sockets[-1]
    socket.socket.shutdown(directory, socket.SHUT_RDWR)
    deadline = Deadline(LIMIT_S)
    while one.homes._peers.get("b") in (None, before) or "a" not in other.homes._peers:
        assert not deadline.is_over(), (one.homes._peers, other.homes._peers)
        threading.Event().wait(0.01)
    for node in (one, other):
        for path, data in FILES.items():
            assert node.read(path) == data
    assert one.stats.peer_nbytes and other.stats.peer_nbytes
    assert len(reads([one, other])) == len(set(reads([one, other])))


def test_what_a_machine_cannot_read_its_reader_asks_the_origin(nodes):
    one, other = nodes("ab")
    other.origin.fails = [Denied("not there")] * 100
    for path, data in FILES.items():
        assert one.read(path) == data


def test_a_file_that_changed_is_an_error_on_each_machine(nodes):
    made = nodes("ab")
    for node in made:
        node.tree.folder("")
        node.origin.files = {path: b"other" + data for path, data in FILES.items()}
    for node in made:
        for path in FILES:
            with pytest.raises(OSError, match="its tag is another"):
                node.read(path)


def test_without_the_token_nothing_is_told(nodes, way):
    one, _ = nodes("ab")
    member = one.homes._peers["b"].member
    to_peer = {**way, "port": member.port, "certificate": member.certificate}
    for where in (way, to_peer):
        stranger = pass_of(where)._replace(token=make_token())
        with pytest.raises((Stranger, OSError)):
            dial(stranger, {"wants": "peers", "node": "x", "member": "[]"}, 5.0)


@pytest.mark.parametrize(
    "path", ["", "..", "../x", "a/../b", "/etc/passwd", "a//b", ".", "a/.", "a/"]
)
def test_a_path_that_leaves_the_mount_is_refused(path):
    asked = {"url": "x", "path": path, "start": 0, "end": 1, "known": [False, 1]}
    with pytest.raises(Denied):
        asked_of(asked)


@pytest.mark.parametrize(
    "wrong",
    [{"start": -1}, {"end": 0}, {"end": 1 << 40}, {"known": 3}, {"start": "x"}, {"path": None}],
)
def test_what_no_machine_asks_is_refused(wrong):
    asked = {"url": "x", "path": "a", "start": 0, "end": 1, "known": [False, 1]} | wrong
    if wrong.get("path", "") is None:
        del asked["path"]
    with pytest.raises((Denied, Again)):
        asked_of(asked)


def test_who_says_that_an_answer_will_come_is_waited_for():
    ours, theirs = socket.socketpair()
    theirs.sendall(2 * b"HTTP/1.1 100 Continue\r\n\r\n")
    theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    machine = Machine(lambda: ours)
    assert machine.ask("read", {}).body == b"ok"
    machine.close()
    theirs.close()


def test_who_hangs_up_is_no_answer():
    def dial():
        ours, theirs = socket.socketpair()
        theirs.close()
        return ours

    machine = Machine(dial)
    with pytest.raises(Again):
        machine.ask("read", {})
    machine.close()
