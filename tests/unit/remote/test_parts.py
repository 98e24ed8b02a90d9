"""Parts that have come are sealed, also where the kernel holds their pages for a while."""

import contextlib
import ctypes
import errno
import fcntl
import os

import pytest

from stoker.remote.host import parts
from stoker.remote.host.part_store import Needs, PartStore
from stoker.remote.host.parts import Coming
from stoker.remote.net.ship import Manifest, Part, Surroundings

NBYTES = 10_000
_libc = ctypes.CDLL(None, use_errno=True)


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("nbytes", ctypes.c_size_t))


def manifest():
    return Manifest("", {}, Surroundings.now(), (Part("a", NBYTES),), (0,), [])


@contextlib.contextmanager
def page_held(address):
    """Hold the page at an address, as who moves pages does: in a pipe. Yields what lets go of it."""
    reads, writes = os.pipe()
    vector = _Vector(address, parts.PAGE)
    assert _libc.vmsplice(writes, ctypes.byref(vector), 1, 0) == parts.PAGE, ctypes.get_errno()
    try:
        yield lambda: os.read(reads, parts.PAGE)
    finally:
        os.close(reads)
        os.close(writes)


@pytest.fixture
def coming():
    made = Coming(0, [Part("a", NBYTES)])
    made.room("a", NBYTES)[:] = b"x" * NBYTES
    made.took("a")
    return made


def test_a_page_that_is_held_for_a_while_is_waited_for(coming, monkeypatch):
    refused, seal = [], fcntl.fcntl
    with page_held(coming._address) as let_go:

        def once_more(*asked):
            try:
                return seal(*asked)
            except OSError as error:
                refused.append(error.errno)
                if len(refused) == 2:
                    let_go()
                raise

        monkeypatch.setattr(fcntl, "fcntl", once_more)
        bundle = coming.seal()
    assert refused == [errno.EBUSY] * 2
    assert bytes(bundle.map("a")) == b"x" * NBYTES
    bundle.close()


def test_a_job_whose_parts_cannot_be_kept_is_refused_and_the_host_goes_on(monkeypatch):
    monkeypatch.setattr(parts, "MOST_TRIES", 2)
    said = []
    needs = Needs(
        lambda number, wanted: said.append(("ask", number, wanted)),
        lambda number: said.append(("begin", number)),
        lambda number, why: said.append(("refuse", number, why)),
    )
    store = PartStore(needs)
    store.add(0, manifest())
    store.room("a", NBYTES)[:] = b"x" * NBYTES
    fd = store._coming[0]._fd
    with page_held(store._coming[0]._address):
        store.took("a")
    assert said[0] == ("ask", 0, ["a"])
    kind, number, why = said[1]
    assert (kind, number) == ("refuse", 0) and "cannot be kept: [Errno 16]" in why
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    store.forget(0)
    store.add(1, manifest())
    store.room("a", NBYTES)[:] = b"x" * NBYTES
    store.took("a")
    assert said[2:] == [("ask", 1, ["a"]), ("begin", 1)]
    store.close()
