"""Who says nothing is given up once, whatever connections to it are kept; who says that an answer will come is
waited for."""

import array
import fcntl
import queue
import socket
import termios
import threading

import pytest

from stoker.clock import Deadline
from stoker.storage.origins import Get
from stoker.storage.reading.getter import Getter, Request

NUM_KEPT = 3
WILL_COME = b"HTTP/1.1 100 Continue\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.mark.parametrize("num_at_once", [1, 7, 1000])
def test_answers_that_say_that_one_will_come_are_none(num_at_once):
    sent = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\nA: b\r\n\r\n"
        + 2 * WILL_COME
        + ANSWER
    )
    ours, theirs = socket.socketpair()
    answers: queue.Queue[object] = queue.Queue()
    get = Get(("run", "x", 0), b"GET / HTTP/1.1\r\n\r\n", 2, lambda: ours)
    wanted = [Request(get, answers.put)]
    getter = Getter(lambda: wanted.pop() if wanted else None)
    getter.wake()
    deadline = Deadline(10.0)
    try:
        assert theirs.recv(4096) == get.head
        for at in range(0, len(sent), num_at_once):
            theirs.sendall(sent[at : at + num_at_once])
            while not is_read(ours):  # else two pieces might come as one
                assert not deadline.is_over()
        answer = answers.get(timeout=10)
        assert (answer.status, bytes(answer.body)) == (200, b"ok")
    finally:
        getter.close()
        theirs.close()


def test_who_hangs_up_after_it_said_that_an_answer_will_come_is_not_asked_once_more():
    """A connection that was kept and ends at once is: its server may have ended it long before."""
    dialled: queue.Queue[socket.socket] = queue.Queue()
    answers: queue.Queue[object] = queue.Queue()

    def dial():
        ours, theirs = socket.socketpair()
        dialled.put(theirs)
        return ours

    get = Get(("run", "x", 0), b"GET / HTTP/1.1\r\n\r\n", 2, dial)
    wanted = [Request(get, answers.put)]
    getter = Getter(lambda: wanted.pop() if wanted else None)
    getter.wake()
    theirs = dialled.get(timeout=10)
    assert theirs.recv(4096) == get.head
    theirs.sendall(ANSWER)
    assert answers.get(timeout=10).status == 200
    wanted.append(Request(get, answers.put))
    getter.wake()
    assert theirs.recv(4096) == get.head
    theirs.sendall(WILL_COME)
    theirs.close()
    assert answers.get(timeout=10) is None
    assert dialled.empty()
    getter.close()


def is_read(sock):
    """Whether nothing has come that was not read yet."""
    waiting = array.array("i", [0])
    fcntl.ioctl(sock.fileno(), termios.FIONREAD, waiting)
    return waiting[0] == 0


def test_a_server_that_falls_silent_is_asked_once_and_not_on_each_connection_that_is_kept():
    asked: queue.Queue[socket.socket] = queue.Queue()
    wanted: queue.Queue[Request] = queue.Queue()
    answers: queue.Queue[object] = queue.Queue()

    def hear(sock):
        while sock.recv(4096):
            asked.put(sock)

    def accept():
        for _ in range(NUM_KEPT):
            sock, _ = listening.accept()
            hearing.append(threading.Thread(target=hear, args=(sock,)))
            hearing[-1].start()
            accepted.append(sock)

    def take():
        return None if wanted.empty() else wanted.get()

    hearing, accepted = [], []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepting = threading.Thread(target=accept)
        accepting.start()
        place = "http", "127.0.0.1", listening.getsockname()[1]
        getter = Getter(take)
        get = Get(place, b"GET / HTTP/1.1\r\n\r\n", 2, None, 1.0)
        for _ in range(NUM_KEPT):
            wanted.put(Request(get, answers.put))
        getter.wake()
        for sock in [asked.get(timeout=10) for _ in range(NUM_KEPT)]:  # each on one of its own
            sock.sendall(ANSWER)
        assert [bytes(answers.get(timeout=10).body) for _ in range(NUM_KEPT)] == [b"ok"] * NUM_KEPT
        accepting.join()
        wanted.put(Request(get, answers.put))
        getter.wake()
        assert answers.get(timeout=10) is None
        assert asked.qsize() == 1
        getter.close()
    for sock, thread in zip(accepted, hearing, strict=True):
        thread.join()
        sock.close()
