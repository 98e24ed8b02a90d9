"""Who is let in, who is not, and what a stranger can make either side read, parse or keep."""

import json
import os
import socket
import ssl
import subprocess
import sys
import threading

import pytest

from stoker.clock import Deadline
from stoker.remote.net import auth
from stoker.remote.net.auth import (
    HELLO_LIMIT_NBYTES,
    MAC_NBYTES,
    NONCE_NBYTES,
    Pass,
    Stranger,
    admit,
    dial,
    introduce,
    make_token,
    why_unlike,
)
from stoker.remote.net.tls import client_context, make_certificate, server_context

PATIENCE_S = 10.0  # nothing that must come takes as long
BRIEF_S = 0.2  # until what never comes is given up
GREETING_NBYTES = 6 + 2 + NONCE_NBYTES
HELLO = {"name": "a worker", "node": "far away", "torch": "2.9"}
TOKEN, OTHER = make_token(), make_token()


def anybody(hello):
    return ""


class Taped:
    """A socket that keeps what went through it, and can change one byte of what is sent."""

    def __init__(self, sock, flip_at=None):
        self._socket = sock
        self._flip_at = flip_at
        self.sent, self.heard = bytearray(), bytearray()

    def __getattr__(self, name):
        return getattr(self._socket, name)

    def recv(self, nbytes):
        piece = self._socket.recv(nbytes)
        self.heard += piece
        return piece

    def sendall(self, data):
        data = bytearray(data)
        if self._flip_at is not None and 0 <= self._flip_at - len(self.sent) < len(data):
            data[self._flip_at - len(self.sent)] ^= 1
        self.sent += data
        self._socket.sendall(data)


@pytest.fixture
def pair():
    """The trainer's end, and the worker's."""
    ends = socket.socketpair()
    for end in ends:
        end.settimeout(PATIENCE_S)
    yield ends
    for end in ends:
        end.close()


class Beside:
    """A call in a thread of its own, and what came of it. Its socket is closed if it raises."""

    def __init__(self, call, sock, *args):
        self.value = self.error = None
        self._work = (call, sock, args)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        call, sock, args = self._work
        try:
            self.value = call(sock, *args)
        except Exception as error:
            self.error = error
            sock.close()

    def wait(self):
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self.error if self.error is not None else self.value


def shake(trainer, worker, tokens=(TOKEN, TOKEN), look=anybody):
    """What either side makes of the other: a value, or the error that it raised."""
    beside = Beside(introduce, worker, tokens[1], HELLO)
    try:
        admitted = admit(trainer, tokens[0], look)
    except Exception as error:
        admitted = error
        trainer.close()
    return admitted, beside.wait()


# -- the token -----------------------------------------------------------------------------------


def test_who_holds_the_token_is_let_in_with_its_hello(pair):
    assert shake(*pair) == (HELLO, None)
    pair[0].sendall(b"said after it")
    assert pair[1].recv(100) == b"said after it", "nothing more of the handshake is on the way"


def test_a_worker_with_another_token_is_refused_and_learns_nothing(pair):
    worker = Taped(pair[1])
    admitted, introduced = shake(pair[0], worker, (TOKEN, OTHER))
    assert isinstance(admitted, Stranger) and "does not hold this run's token" in str(admitted)
    assert isinstance(introduced, Stranger) and "hung up" in str(introduced)
    assert len(worker.heard) == GREETING_NBYTES


def test_a_trainer_with_another_token_is_refused(pair):
    """It lets anybody in, so as to be believed: whoever dials must notice."""
    greeting = auth._GREETING.pack(b"stoker", 1, bytes(NONCE_NBYTES))
    answer = json.dumps({"refused": ""}).encode()
    beside = Beside(introduce, pair[1], TOKEN, HELLO)
    pair[0].sendall(greeting)
    nonce = pair[0].recv(NONCE_NBYTES, socket.MSG_WAITALL)
    proof = auth._mac(OTHER, b"trainer", nonce, bytes(NONCE_NBYTES), answer)
    pair[0].sendall(len(answer).to_bytes(4, "little") + answer + proof)
    error = beside.wait()
    assert isinstance(error, Stranger)
    assert str(error) == "the trainer does not hold this run's token"


def test_a_workers_own_proof_is_no_proof_of_the_trainers(pair):
    beside = Beside(introduce, pair[1], TOKEN, HELLO)
    pair[0].sendall(auth._GREETING.pack(b"stoker", 1, bytes(NONCE_NBYTES)))
    pair[0].recv(NONCE_NBYTES, socket.MSG_WAITALL)
    pair[0].sendall(pair[0].recv(1 << 16))
    assert str(beside.wait()) == "the trainer does not hold this run's token"


@pytest.mark.parametrize("at", [0, 31, 32, 36, 50, -MAC_NBYTES - 1, -MAC_NBYTES, -1])
def test_one_bit_of_the_workers_words_changed_on_the_way_is_refused(pair, at):
    told = NONCE_NBYTES + 4 + len(json.dumps(HELLO)) + MAC_NBYTES
    pair[0].settimeout(BRIEF_S)  # a changed length may mean more than comes
    admitted, introduced = shake(pair[0], Taped(pair[1], flip_at=at % told))
    assert isinstance(admitted, (Stranger, TimeoutError))
    assert isinstance(introduced, Stranger)


@pytest.mark.parametrize("at", [0, 6, 8, 39, 40, 44, 58, 59, 90])
def test_one_bit_of_the_trainers_words_changed_on_the_way_is_refused(pair, at):
    pair[1].settimeout(BRIEF_S)
    trainer = Taped(pair[0], flip_at=at)
    admitted, introduced = shake(trainer, pair[1])
    assert isinstance(introduced, (Stranger, TimeoutError))
    if at < GREETING_NBYTES:
        assert isinstance(admitted, (Stranger, OSError))
        assert len(trainer.sent) == GREETING_NBYTES
    else:
        assert len(trainer.sent) == 91, "the last byte that was changed is the last there is"


def test_a_recorded_worker_is_refused_by_a_new_connection(pair):
    worker = Taped(pair[1])
    assert shake(pair[0], worker) == (HELLO, None)
    again, thief = socket.socketpair()
    with again, thief:
        again.settimeout(PATIENCE_S)
        thief.sendall(worker.sent)
        with pytest.raises(Stranger, match="does not hold this run's token"):
            admit(again, TOKEN, anybody)
        assert len(thief.recv(1 << 16)) == GREETING_NBYTES


def test_a_recorded_trainer_is_refused_by_a_new_worker(pair):
    worker = Taped(pair[1])
    assert shake(pair[0], worker) == (HELLO, None)
    again, thief = socket.socketpair()
    with again, thief:
        again.settimeout(PATIENCE_S)
        thief.sendall(worker.heard)
        with pytest.raises(Stranger, match="the trainer does not hold this run's token"):
            introduce(again, TOKEN, HELLO)


def test_no_two_handshakes_say_the_same(pair):
    first = Taped(pair[1])
    shake(pair[0], first)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        second = Taped(theirs)
        assert shake(ours, second) == (HELLO, None)
    assert first.sent[:NONCE_NBYTES] != second.sent[:NONCE_NBYTES]
    assert first.heard[8:GREETING_NBYTES] != second.heard[8:GREETING_NBYTES]


# -- strangers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"", b"x", bytes(NONCE_NBYTES), bytes(NONCE_NBYTES + 3)])
def test_whoever_says_too_little_is_given_up_when_the_time_is_over(pair, said):
    pair[0].settimeout(BRIEF_S)
    pair[1].sendall(said)
    with pytest.raises(TimeoutError):
        admit(pair[0], TOKEN, anybody)


def test_a_silent_trainer_is_given_up_when_the_time_is_over(pair):
    pair[1].settimeout(BRIEF_S)
    with pytest.raises(TimeoutError):
        introduce(pair[1], TOKEN, HELLO)
    pair[0].setblocking(False)
    with pytest.raises(BlockingIOError):
        pair[0].recv(1)


class Dripping:
    """A peer that says one byte a second, and never stops. Time is a number here."""

    def __init__(self, timeout_s):
        self.now_s = 0.0
        self.timeout_s = timeout_s

    def gettimeout(self):
        return self.timeout_s

    def settimeout(self, timeout_s):
        self.timeout_s = timeout_s

    def sendall(self, data):
        pass

    def recv(self, nbytes):
        self.now_s += 1.0
        return b"s"


@pytest.mark.parametrize("shake_hands", [admit, introduce])
def test_whoever_drips_byte_after_byte_is_given_up_when_the_time_is_over(shake_hands, monkeypatch):
    peer = Dripping(5.0)
    monkeypatch.setattr(auth, "Deadline", lambda s: Deadline(s, clock=lambda: peer.now_s))
    with pytest.raises(TimeoutError):
        shake_hands(peer, TOKEN, anybody)
    assert peer.now_s == 5.0
    assert peer.timeout_s == 1.0, "the last wait is for what is left"


def test_whoever_hangs_up_is_a_stranger(pair):
    pair[1].sendall(bytes(NONCE_NBYTES))
    pair[1].shutdown(socket.SHUT_WR)
    with pytest.raises(Stranger, match="hung up"):
        admit(pair[0], TOKEN, anybody)


@pytest.mark.parametrize("nbytes", [HELLO_LIMIT_NBYTES + 1, 1 << 31, (1 << 32) - 1])
def test_a_hello_that_is_too_long_is_refused_before_it_is_read(pair, nbytes):
    trainer = Taped(pair[0])
    pair[1].sendall(bytes(NONCE_NBYTES) + nbytes.to_bytes(4, "little") + b"some of it")
    with pytest.raises(Stranger, match=f"its hello claims {nbytes} bytes"):
        admit(trainer, TOKEN, anybody)
    assert len(trainer.heard) == NONCE_NBYTES + 4


def test_an_answer_that_is_too_long_is_refused_before_it_is_read(pair):
    worker = Taped(pair[1])
    pair[0].sendall(auth._GREETING.pack(b"stoker", 1, bytes(NONCE_NBYTES)))
    pair[0].sendall((HELLO_LIMIT_NBYTES + 1).to_bytes(4, "little") + b"some of it")
    with pytest.raises(Stranger, match="claims 16385 bytes"):
        introduce(worker, TOKEN, HELLO)
    assert len(worker.heard) == GREETING_NBYTES + 4


def test_the_longest_hello_is_read(pair):
    padding = "x" * (HELLO_LIMIT_NBYTES - len(json.dumps({"name": ""})))
    beside = Beside(introduce, pair[1], TOKEN, {"name": padding})
    assert admit(pair[0], TOKEN, anybody) == {"name": padding}
    assert beside.wait() is None


@pytest.mark.parametrize("tokens", [(TOKEN, OTHER), (TOKEN, TOKEN)])
def test_nothing_is_parsed_before_its_proof_was_checked(pair, tokens, monkeypatch):
    parsed, looked, checked = [], [], []
    loads, compare = json.loads, auth.hmac.compare_digest

    def spied_loads(text):
        parsed.append((bytes(text), len(checked)))
        return loads(text)

    def spied_compare(a, b):
        checked.append(compare(a, b))
        return checked[-1]

    monkeypatch.setattr(auth.json, "loads", spied_loads)
    monkeypatch.setattr(auth.hmac, "compare_digest", spied_compare)
    shake(*pair, tokens, look=lambda hello: looked.append(hello) or "")
    if tokens == (TOKEN, OTHER):
        assert (parsed, looked, checked) == ([], [], [False])
    else:
        hello, answer = json.dumps(HELLO).encode(), b'{"refused": ""}'
        assert parsed == [(hello, 1), (answer, 2)]
        assert looked == [HELLO] and checked == [True, True]


def test_a_trainer_of_another_version_is_refused_by_both_numbers(pair):
    pair[0].sendall(auth._GREETING.pack(b"stoker", 7, bytes(NONCE_NBYTES)))
    worker = Taped(pair[1])
    with pytest.raises(Stranger) as caught:
        introduce(worker, TOKEN, HELLO)
    assert str(caught.value) == "the trainer speaks version 7 of the protocol, this is 1"
    assert not worker.sent


def test_whoever_is_not_stoker_at_all_is_told_nothing(pair):
    pair[0].sendall(b"SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13.5\r\n")
    worker = Taped(pair[1])
    with pytest.raises(Stranger, match="whoever answers there is not stoker"):
        introduce(worker, TOKEN, HELLO)
    assert not worker.sent


def test_a_refusal_reaches_the_worker_in_its_words(pair):
    why = "torch 2.9 there, 2.8 at the trainer"
    admitted, introduced = shake(*pair, look=lambda h: why_unlike({"torch": "2.8"}, h))
    assert isinstance(admitted, Stranger) and str(admitted) == why
    assert isinstance(introduced, Stranger) and str(introduced) == why


def test_versions_are_compared_by_what_the_trainer_has():
    ours = {"torch": "2.9", "NumPy": "2.1"}
    assert why_unlike(ours, {**ours, "more": "of it"}) == ""
    assert why_unlike(ours, {"torch": "2.9"}) == "NumPy None there, 2.1 at the trainer"


def test_one_list_of_parts_has_one_proof():
    assert auth._mac(TOKEN, b"ab", b"c") != auth._mac(TOKEN, b"a", b"bc")
    assert auth._mac(TOKEN, b"ab", b"c") != auth._mac(TOKEN, b"ab", b"c", b"")
    assert len(TOKEN) == 32 and TOKEN != OTHER


# -- TLS -----------------------------------------------------------------------------------------


class Trainer:
    """Admits one worker at a port of its own, in TLS if it has a context."""

    def __init__(self, context=None, timeout_s=PATIENCE_S, hangs_up=()):
        """hangs_up: what it says to those whom it turns away before."""
        self._context, self._hangs_up = context, hangs_up
        self._timeout_s = timeout_s
        self.sock = None
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._beside = Beside(self._admit, self._listening)

    def _admit(self, listening):
        listening.settimeout(PATIENCE_S)
        for words in self._hangs_up:
            with listening.accept()[0] as sock:
                if words is not None:
                    sock.recv(1 << 16)
                    sock.sendall(words)
        self.sock, _ = listening.accept()
        self.sock.settimeout(self._timeout_s)
        if self._context is not None:
            self.sock = self._context.wrap_socket(self.sock, server_side=True)
        return admit(self.sock, TOKEN, anybody)

    def way(self, certificate=""):
        return Pass(*self._listening.getsockname(), TOKEN, certificate)

    def wait(self):
        came = self._beside.wait()
        self._listening.close()
        if self.sock is not None:
            self.sock.close()
        return came


@pytest.fixture(scope="module")
def certificates():
    return [make_certificate() for _ in range(2)]


def test_a_worker_with_the_runs_certificate_is_let_in(certificates):
    (certificate, key), _ = certificates
    trainer = Trainer(server_context(certificate, key))
    with dial(trainer.way(certificate), HELLO, PATIENCE_S) as worker:
        assert isinstance(worker, ssl.SSLSocket) and worker.version() == "TLSv1.3"
        assert trainer.wait() == HELLO


def test_a_worker_that_is_turned_away_comes_again(certificates):
    (certificate, key), _ = certificates
    closes = b"\x15\x03\x03\x00\x02\x01\x00"  # an alert: close_notify
    trainer = Trainer(server_context(certificate, key), hangs_up=(None, b"", closes))
    with dial(trainer.way(certificate), HELLO, PATIENCE_S):
        assert trainer.wait() == HELLO


def test_without_a_certificate_there_is_no_tls():
    trainer = Trainer()
    with dial(trainer.way(), HELLO, PATIENCE_S) as worker:
        assert not isinstance(worker, ssl.SSLSocket)
        assert trainer.wait() == HELLO


def test_a_worker_refuses_a_trainer_with_another_certificate(certificates):
    (pinned, _), (other, key) = certificates
    trainer = Trainer(server_context(other, key))
    with pytest.raises(ssl.SSLCertVerificationError):
        dial(trainer.way(pinned), HELLO, PATIENCE_S)
    assert isinstance(trainer.wait(), OSError)


def test_a_plain_worker_gives_up_on_a_trainer_with_tls_in_time(certificates):
    (certificate, key), _ = certificates
    trainer = Trainer(server_context(certificate, key), timeout_s=BRIEF_S)
    with pytest.raises((OSError, Stranger)):
        dial(trainer.way(), HELLO, BRIEF_S)
    assert isinstance(trainer.wait(), OSError)


def test_a_worker_with_tls_refuses_a_plain_trainer(certificates):
    trainer = Trainer()
    with pytest.raises(ssl.SSLError):
        dial(trainer.way(certificates[0][0]), HELLO, PATIENCE_S)
    assert isinstance(trainer.wait(), (Stranger, OSError))


def test_an_older_tls_is_refused(certificates):
    (certificate, key), _ = certificates
    trainer = Trainer(server_context(certificate, key))
    context = client_context(certificate)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    way = trainer.way()
    with (
        socket.create_connection((way.address, way.port), PATIENCE_S) as sock,
        pytest.raises(ssl.SSLError),
    ):
        context.wrap_socket(sock)
    assert isinstance(trainer.wait(), ssl.SSLError)


def test_every_run_has_a_key_of_its_own(certificates):
    (one, first), (other, second) = certificates
    assert one != other and first != second
    assert "PRIVATE" not in one


WATCHED = """
import os, sys
import stoker.remote.net.tls as tls
tls.make_certificate()  # imports what it needs
opened, fds = [], set(os.listdir("/proc/self/fd"))
sys.addaudithook(lambda event, args: opened.append(args) if event == "open" else None)
certificate, key = tls.make_certificate()
tls.server_context(certificate, key)
written = [args for args in opened if args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)]
sys.exit(f"{written} {os.listdir('.')}" if written or os.listdir(".") else 0)
"""


def test_a_key_is_written_to_no_file(tmp_path):
    environ = {**os.environ, "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-B", "-c", WATCHED],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr


def test_the_memory_that_a_key_was_read_from_is_gone(certificates, monkeypatch):
    (certificate, key), _ = certificates
    made = []
    memfd_create = os.memfd_create

    def spied(*args):
        made.append(memfd_create(*args))
        return made[-1]

    monkeypatch.setattr(os, "memfd_create", spied)
    server_context(certificate, key)
    assert len(made) == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(made[0])
    with pytest.raises(ssl.SSLError):
        server_context(certificate, "no key")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(made[1])
