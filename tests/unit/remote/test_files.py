"""Files of the trainer's machine, as another machine is sent them: what is, and what is refused."""

import os
import socket
import threading

import pytest

from stoker.remote.net.auth import Pass as Secret
from stoker.remote.net.auth import Stranger, dial, make_token
from stoker.remote.trainer.files import FileServer
from stoker.remote.trainer.listener import Listener
from stoker.storage.origins import Changed, Denied, Entry, Missing
from stoker.storage.origins.host import Host

DATA = os.urandom(300_000)


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "a ü.bin").write_bytes(DATA)
    (folder / "sub/b.bin").write_bytes(b"b")
    (tmp_path / "secret").write_text("secret")
    (folder / "out").symlink_to("../secret")
    (folder / "shadow").symlink_to("/etc/shadow")
    (folder / "up").symlink_to("..")
    (folder / "self").symlink_to("/proc/self/environ")
    (folder / "in").symlink_to("sub/b.bin")
    (folder / "sub/back").symlink_to("../a ü.bin")  # out of its folder, not of the root
    (folder / ".ssh").mkdir()
    (folder / ".ssh/id").write_text("secret")
    (folder / "sub/loop").symlink_to("loop")
    os.mkfifo(folder / "fifo")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(folder / "socket"))
    (folder / "device").symlink_to("/dev/zero")
    return folder


@pytest.fixture
def served(root):
    """An origin whose connections are answered by a FileServer, with nothing between them."""
    server = FileServer([str(root)])

    class Direct(Host):
        def _dial(self):
            ours, theirs = socket.socketpair()
            ours.settimeout(10)
            server.serve(theirs)
            return ours

    origins = []

    def origin(path=root):
        origins.append(Direct(f"host://{path}", {}))
        return origins[-1]

    yield origin, server
    for each in origins:
        each.close()
    server.close()


def test_files_and_folders_are_listed_and_read(root, served):
    origin, server = served[0](), served[1]
    listed = origin.list("")
    assert set(listed) == {"a ü.bin", "sub", "in", ".ssh"}  # nothing that leads out, and no FIFO
    assert origin.list("sub")["back"].nbytes == len(DATA)
    assert listed["sub"].is_folder and listed["in"].nbytes == 1
    known = listed["a ü.bin"]
    assert (
        known == origin.look("a ü.bin") and known.mtime_ns == (root / "a ü.bin").stat().st_mtime_ns
    )
    assert origin.read("a ü.bin", 0, len(DATA), known).body == DATA
    assert origin.read("a ü.bin", 100, 200, known).body == DATA[100:200]
    assert origin.read("in", 0, 1, listed["in"]).body == b"b"
    assert server.num_nbytes == len(DATA) + 101


OUTSIDE = [
    "..", "../secret", "sub/../../secret", "/etc/shadow", "/etc/passwd", "out", "shadow", "up/secret",
    "self", "device", "fifo", "socket", "sub/loop", "up", ".ssh/id", ".ssh",
]  # fmt: skip


@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_outside_of_the_root_and_nothing_but_files(served, path):
    origin = served[0]()
    for ask in (
        lambda: origin.look(path),
        lambda: origin.list(path),
        lambda: origin.read(path, 0, 1, Entry(False, 6)),
    ):
        with pytest.raises((Denied, Missing)):
            ask()
    assert served[1].num_nbytes == 0


@pytest.mark.parametrize("root_of_theirs", ["/", "/etc", "{root}/sub", "{root}/..", "{root}/", ""])
def test_a_root_of_anybody_elses_choice_is_none(root, served, root_of_theirs):
    origin = served[0](root_of_theirs.format(root=root))
    with pytest.raises(Denied):
        origin.list("")


def test_a_file_that_was_modified_is_not_sent(root, served):
    origin = served[0]()
    known = origin.look("a ü.bin")
    (root / "a ü.bin").write_bytes(DATA)
    with pytest.raises(Changed):
        origin.read("a ü.bin", 0, 10, known)


def test_what_is_not_there_is_missing(served):
    for ask in (served[0]().list, served[0]().look):
        with pytest.raises(Missing):
            ask("no/such")


@pytest.mark.parametrize(
    "asked",
    [
        "null", "{}", "{{{", "[]", "", '{"root": 1}', '{"root": "/", "path": []}', "1" * 10**5,
    ],
    ids=range(8),
)  # fmt: skip
def test_what_is_not_understood_ends_the_connection_or_is_refused(served, asked):
    ours, theirs = socket.socketpair()
    with ours:
        ours.settimeout(10)
        served[1].serve(theirs)
        ours.sendall(b"GET /read HTTP/1.1\r\nAsked: %b\r\n\r\n" % asked.encode())
        ours.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: ours.recv(65536), b""))
    assert answer == b"" or answer.startswith(b"HTTP/1.1 403 ")


# -- the handshake -------------------------------------------------------------------------------


def test_who_has_not_the_token_is_sent_nothing(root):
    posted = []
    files = FileServer([str(root)])
    settings = {"no_tls": True, "allow_mismatch": False, "versions": {"stoker": "1"}}
    listener = Listener(settings, posted.append, lambda *_: None, lambda _: None, files)
    way = listener.open("127.0.0.1", "127.0.0.1")
    stop = threading.Event()

    def accept():
        while not stop.wait(0.01):
            listener.accept()

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        wrong = Secret("127.0.0.1", way["port"], make_token())
        with pytest.raises((Stranger, OSError)):
            dial(wrong, {"wants": "files", "node": "x"}, 5.0)
        right = Secret("127.0.0.1", way["port"], bytes.fromhex(way["token"]))
        with dial(right, {"wants": "files", "node": "x"}, 5.0):
            pass
    finally:
        stop.set()
        thread.join()
        listener._listening.close()
        for each in threading.enumerate():
            if each is not threading.main_thread() and "shake" in each.name:
                each.join()
        for each in posted:
            each()
        files.close()
