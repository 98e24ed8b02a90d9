"""What a job is made of on its way, and what is said of one that cannot go."""

import collections
import functools
import json
import os
import pickle
import socket
import sqlite3
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace

import cloudpickle
import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, default_collate

pytest.importorskip("cloudpickle", reason="the cluster extra is not installed")
pytest.importorskip("xxhash", reason="the cluster extra is not installed")

from stoker.fingerprint.mapped import NotTheSame, mapping_of
from stoker.remote.net import ship
from stoker.worker.job import Job


class Samples(Dataset):
    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index


def job_of(dataset, collate_fn=default_collate, worker_init_fn=None):
    return Job(0, dataset, True, collate_fn, False, 0, worker_init_fn, 1)


def said_of(job: Job) -> str:
    """Why it stays, as the process that packs it says."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ship.ship(job, theirs)
        theirs.close()
        ours.recv(1)
        said = b"".join(iter(functools.partial(ours.recv, 1 << 16), b""))
    return json.loads(said).get("cannot", "")


def there_and_back(value):
    buffers: list[memoryview] = []
    stream = ship.dumps(value, buffers)
    return pickle.loads(stream, buffers=[bytearray(b) for b in buffers])[0]


# -- what cannot go, and where it is ---------------------------------------------------------------


class Calls:
    def __init__(self, held):
        self.held = held

    def __call__(self, index):
        return self.held

    def method(self, index):
        return self.held


class Slotted:
    __slots__ = ("held",)

    def __init__(self, held):
        self.held = held


def closure(held):
    return lambda index: held


def default(held):
    return lambda index, given=held: given


def local_class(held):
    class Local:
        kept = held

    Local.__module__ = "__main__"  # such a class travels by value
    return Local()


LOCK = "_thread.lock cannot be pickled: TypeError: cannot pickle '_thread.lock' object"
PLACES = {
    "itself": (lambda held: held, ""),
    "list": (lambda held: [1, held], "[1]"),
    "dict": (lambda held: {"a": {2: held}}, "['a'][2]"),
    "deque": (lambda held: collections.deque([held]), "[0]"),
    "array of objects": (lambda held: np.array([0, held], object), "[(1,)]"),
    "attribute": (lambda held: SimpleNamespace(held=held), ".held"),
    "slot": (Slotted, ".held"),
    "callable": (Calls, ".held"),
    "method": (lambda held: Calls(held).method, ".__self__.held"),
    "partial": (lambda held: functools.partial(print, end=held), ".keywords['end']"),
    "closure": (closure, "'s held"),
    "default": (default, "'s given"),
    "local class": (local_class, "'s class.kept"),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_way_to_what_cannot_be_pickled_is_told(place):
    put, way = PLACES[place]
    dataset = Samples(transform=SimpleNamespace(fn=put(threading.Lock())))
    assert said_of(job_of(dataset)) == f"dataset.transform.fn{way}: {LOCK}"


@pytest.mark.parametrize("name", ["collate_fn", "worker_init_fn"])
def test_functions_beside_the_dataset_are_told_by_their_names(name):
    job = job_of(Samples(), **{name: closure(threading.Lock())})
    assert said_of(job) == f"{name}'s held: {LOCK}"


def open_file():
    return Path(os.devnull).open("rb")  # the test closes it


HANDLES = {
    "a file": (open_file, "_io.BufferedReader"),
    "a socket": (socket.socket, "socket.socket"),
    "a database": (lambda: sqlite3.connect(":memory:"), "sqlite3.Connection"),
    "a generator": (lambda: (index for index in range(3)), "HANDLES.<lambda>.<locals>.<genexpr>"),
}


@pytest.mark.parametrize("handle", HANDLES)
def test_an_open_handle_is_told_by_its_place_and_type(handle):
    make, kind = HANDLES[handle]
    held = make()
    said = said_of(job_of(Samples(transform=SimpleNamespace(fn=closure(held)))))
    held.close()
    kind = kind.removeprefix("HANDLES.")
    assert said.startswith(f"dataset.transform.fn's held: {kind} cannot be pickled: TypeError: ")


class Handle:
    """As h5py's: its class reaches what nobody can look into, and says so only when pickled."""

    cache = (index for index in range(3))

    def __reduce__(self):
        raise TypeError("open handles cannot be pickled")


def test_what_a_library_forbids_to_pickle_is_told_as_the_scripts_own_attribute():
    said = said_of(job_of(Samples(file=Handle())))
    name = f"{__name__}.Handle"
    assert (
        said == f"dataset.file: {name} cannot be pickled: TypeError: open handles cannot be pickled"
    )


class Reaches:
    """It can be pickled, by name, but not compared."""

    cache = (index for index in range(3))


def test_what_a_class_reaches_is_told_with_the_attribute_that_has_the_class():
    said = said_of(job_of(Samples(file=Reaches())))
    assert said.startswith(
        "its state cannot be compared between machines: type(dataset.file) reaches Reaches.cache: "
        "builtins.generator cannot be looked into: TypeError: "
    )


# -- mapped files -----------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "tokens.bin"
    np.arange(1 << 20, dtype=np.uint16).tofile(made)
    return made


def mapped(file, mode="r"):
    """Not a fixture's: that would hold it until after the test."""
    return np.memmap(file, np.uint16, mode)


VIEWS = {
    "whole": lambda tokens: tokens,
    "slice": lambda tokens: tokens[1000:5000],
    "backwards": lambda tokens: tokens[5000:1000:-3],
    "table": lambda tokens: tokens[6 : 6 + 999].reshape(9, 111).T,
    "none": lambda tokens: tokens[7:7],
    "array": lambda tokens: np.asarray(tokens)[8:],
    "other type": lambda tokens: tokens[8:].view(np.uint8),
    "of what is left": lambda tokens: np.memmap(tokens.filename, np.uint8, "r", offset=70_001),
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_mapped_array_travels_by_name_and_is_what_it_was(file, view):
    shown = VIEWS[view](mapped(file))
    assert len(ship.dumps(shown, [])) < 2000
    again = there_and_back(shown)
    assert type(again) is type(shown)
    assert (again.dtype, again.shape, again.strides) == (shown.dtype, shown.shape, shown.strides)
    assert (again == shown).all()
    assert not again.flags.writeable
    if type(shown) is np.memmap:
        assert (again.filename, again.offset, again.mode) == (
            shown.filename,
            shown.offset,
            shown.mode,
        )


def test_arrays_of_one_mapping_share_one_there(file):
    tokens = mapped(file)
    again = there_and_back([tokens[k : k + 10] for k in range(100)])
    assert len({id(mapping_of(array)) for array in again}) == 1


def test_a_job_over_a_mapped_file_is_the_same_where_the_file_is(file):
    tokens = mapped(file)
    job = job_of(Samples(tokens=tokens, parts=[tokens[5:], np.asarray(tokens)]))
    manifest, fd = ship._packed(job)
    assert sum(part.nbytes for part in manifest.parts) < 10_000
    stream = bytearray(os.pread(fd, manifest.parts[0].nbytes, manifest.starts[0]))
    os.close(fd)
    again = there_and_back(job)
    look = functools.partial(ship.fingerprint, deadline=ship.Deadline(10))
    assert look(again.reachable()).hex() == look(job.reachable()).hex()
    os.utime(file, ns=(0, 0))
    with pytest.raises(NotTheSame, match="it was changed at another time"):
        pickle.loads(stream)


def test_what_was_just_put_into_a_library_is_told_though_the_jobs_fingerprint_is_the_same(
    monkeypatch,
):
    """The look of a moment ago, at another loader's job, knows nothing of it."""

    def told():
        manifest, fd = ship._packed(job_of(Samples()))
        os.close(fd)
        return manifest.fingerprint, manifest.trail["libraries"]

    fingerprint, libraries = told()
    monkeypatch.setattr(torch.nn.functional, "hardtanh", lambda x: x)
    now = told()
    assert now[0] == fingerprint
    assert now[1] != libraries


@pytest.mark.parametrize("mode", ["r+", "c"])
def test_a_mapping_that_may_be_written_stays(file, mode):
    said = said_of(job_of(Samples(data=mapped(file, mode))))
    assert said.startswith("dataset.data: numpy.memmap cannot be pickled: ")
    assert "a mapped file that may be written" in said


def test_what_the_script_defines_goes_by_value_also_where_it_was_imported_anew(monkeypatch):
    """As in a process of forkserver or spawn, whose main module is `__mp_main__`."""
    main = ModuleType("__mp_main__")
    exec(
        "class Own:\n    def told(self):\n        return helper()\ndef helper():\n    return 7",
        vars(main),
    )
    for name in ("__main__", "__mp_main__"):
        monkeypatch.setitem(sys.modules, name, main)
    stream = ship.dumps(main.Own(), [])
    cloudpickle.unregister_pickle_by_value(main)
    del main.Own, main.helper
    own, classes = pickle.loads(stream)
    assert own.told() == 7 and classes == [type(own)]


def test_functions_by_value_name_their_file():
    """For tracebacks: cloudpickle 3.1.3 has "<dynamic-code>" in its place."""

    def made_here():
        return [None, lambda: 1 / 0]

    there = there_and_back(made_here)
    with pytest.raises(ZeroDivisionError) as raised:
        there()[1]()
    inner = raised.traceback[-1].frame.code.raw
    assert there.__code__ == made_here.__code__
    assert inner.co_filename == there.__code__.co_filename == __file__


def test_a_job_larger_than_half_of_what_is_free_stays(monkeypatch):
    monkeypatch.setattr(ship, "available_nbytes", lambda: 1 << 30)
    dataset = Samples(labels=np.zeros(10), images=torch.zeros(1 << 28, dtype=torch.uint8).repeat(3))
    assert said_of(job_of(dataset)) == (
        "dataset.images: 0.8 GiB, and all together more than 0.5 GiB, half of the memory that is free"
    )
