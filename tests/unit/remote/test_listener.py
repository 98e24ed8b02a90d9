"""A door whose places are all held by strangers lets a host in all the same."""

import contextlib
import queue
import select
import socket
import threading
from collections.abc import Callable

import pytest

from stoker.remote.net.auth import Pass, dial, versions
from stoker.remote.trainer.listener import MAX_STRANGERS, Listener

PATIENCE_S = 60.0


class Owner:
    """The thread that has the door: it accepts and does what is posted until a host is in."""

    def __init__(self, no_tls: bool) -> None:
        self.posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.let_in: list[socket.socket] = []
        settings = {"no_tls": no_tls, "allow_mismatch": False, "versions": versions()}
        self.door = Listener(
            settings, self.posted.put, lambda sock, name, node: self.let_in.append(sock), print
        )

    @property
    def shakes_hands(self) -> bool:
        return any("_shake_hands" in each.name for each in threading.enumerate())

    def serve(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            if select.select([self.door], [], [], 0.01)[0]:
                self.door.accept()
            with contextlib.suppress(queue.Empty):
                self.posted.get_nowait()()


@pytest.mark.parametrize("no_tls", [True, False], ids=["plain", "TLS"])
def test_a_host_is_let_in_while_silent_strangers_hold_all_places(no_tls: bool) -> None:
    """They are not waited for: all but those that gave way still hold theirs when it is in."""
    owner = Owner(no_tls)
    said = owner.door.open("127.0.0.2" if no_tls else "localhost", "localhost")
    address = ("127.0.0.2" if no_tls else "127.0.0.1", said["port"])
    way = Pass(*address, bytes.fromhex(said["token"]), said["certificate"])
    with contextlib.ExitStack() as held:
        strangers = [
            held.enter_context(socket.create_connection(address)) for _ in range(MAX_STRANGERS)
        ]
        owner.serve(lambda: len(owner.door._shaking) == MAX_STRANGERS)
        hello = {"name": "x", "node": "y", **versions()}
        made: list[socket.socket] = []
        host = threading.Thread(target=lambda: made.append(dial(way, hello, PATIENCE_S)))
        host.start()
        owner.serve(lambda: bool(owner.let_in) or not (host.is_alive() or made))
        host.join(PATIENCE_S)
        for sock in (*made, *owner.let_in):
            held.enter_context(sock)
        assert len(made) == 1
        num_held = len(owner.door._shaking)
        assert num_held > MAX_STRANGERS / 2, "it had to wait until they were hung up on"
        for sock in strangers:
            sock.close()
        owner.serve(lambda: not owner.door._shaking)  # and each gives its place back
        owner.serve(lambda: not owner.shakes_hands and owner.posted.empty())  # all are closed
    assert owner.door._listening is not None
    owner.door._listening.close()
