"""What is read out of the code behind a loader."""

import datetime
import functools
import os
import queue
import random
import secrets
import threading
import time
from pathlib import Path
from time import perf_counter as tick

import numpy as np
import pytest

from stoker.clock import Deadline
from stoker.verify.suspects import scan

clock = time.time


class Plain:
    """Suspicious in nothing: draws from seeded generators, sorts what it lists."""

    def __init__(self):
        self.generator = np.random.default_rng(7)
        self.files = sorted(Path.cwd().iterdir())
        self.names = sorted(os.listdir("."))  # noqa: PTH208  # as scripts write it

    def __getitem__(self, index):
        time.sleep(0)
        random.seed(index)
        return random.random() + np.random.rand() + random.Random(3).random()


def helper():
    return datetime.datetime.now()


def inner(index):
    import uuid
    from concurrent import futures as later

    return uuid.uuid4(), later.as_completed([])


class Slots:
    __slots__ = ("call",)

    def __init__(self, call):
        self.call = call


class Worker(threading.Thread):
    def __init__(self):
        super().__init__()


CASES = {
    "attribute": (lambda i: time.time(), "time.time()", "clock"),
    "alias": (lambda i: clock(), "time.time()", "clock"),
    "from import": (lambda i: tick(), "time.perf_counter()", "clock"),
    "helper": (lambda i: helper(), "datetime.datetime.now()", "clock"),
    "local import": (inner, "uuid.uuid4()", "entropy"),
    "local import from": (inner, "concurrent.futures.as_completed()", "timing"),
    "entropy": (lambda i: os.urandom(3), "os.urandom()", "entropy"),
    "secrets": (lambda i: secrets.token_hex(), "secrets.token_hex()", "entropy"),
    "unseeded": (lambda i: np.random.default_rng(), "numpy.random.default_rng()", "entropy"),
    "seeded with None": (lambda i: random.seed(None), "random.seed()", "entropy"),
    "partial": (functools.partial(time.sleep, helper), "datetime.datetime.now()", "clock"),
    "kept": (Slots(time.monotonic), "time.monotonic()", "clock"),
    "in a container": ({"a": [(lambda i: os.getpid(),)]}, "os.getpid()", "process"),
    "subclass": (Worker, "threading.Thread()", "thread"),
    "queue": (lambda i: queue.Queue(), "queue.Queue()", "timing"),
    "pool": (lambda pool: pool.imap_unordered(len, []), "imap_unordered()", "timing"),
    "environment": (lambda i: os.environ["X"], "os.environ", "process"),
    "address": (lambda i: id(i), "id()", "address"),
    "listing": (lambda i: os.listdir("."), "os.listdir()", "folder"),  # noqa: PTH208
    "comprehension": (lambda i: [time.time() for _ in range(3)], "time.time()", "clock"),
}  # fmt: skip


def findings(root, frame=None, seconds=30):
    return scan({"dataset": root}, frame, Deadline(seconds))


@pytest.mark.parametrize("case", CASES)
def test_a_suspect_is_found_however_it_is_written(case):
    root, word, kind = CASES[case]
    assert (word, kind) in {(found.word, found.kind) for found in findings(root)}


def test_a_finding_names_the_line_and_the_function():
    (found,) = findings(helper)
    assert found.place.endswith(f"test_suspects.py:{helper.__code__.co_firstlineno + 1}")
    assert (found.inside, found.where) == ("helper", "dataset")


def test_seeded_generators_sorted_listings_and_sleep_are_no_suspects():
    assert findings(Plain()) == []


def test_no_code_of_the_script_runs():
    class Trap:
        def __getattribute__(self, name):
            raise AssertionError(name)

    class Mapping(dict):
        def values(self):
            raise AssertionError

    class Property:
        @property
        def now(self):
            return time.time()

    trapped = [Trap(), Mapping(a=1), Property()]
    assert [found.word for found in findings(trapped)] == ["time.time()"]


def test_what_is_too_large_to_read_ends_in_time():
    assert findings([[object() for _ in range(99)] for _ in range(99)], seconds=0) == []


def test_in_the_training_loop_only_what_seeds_counts():
    import sys

    def prints():
        start = time.time()
        return findings(None, sys._getframe()), start

    def seeds():
        random.seed(int(time.time()))
        return findings(None, sys._getframe())

    assert [f for f in prints()[0] if f.inside.endswith("prints")] == []
    (found,) = [f for f in seeds() if f.inside.endswith("seeds")]
    assert (found.word, found.where) == ("time.time()", "loop")


def test_a_decorated_function_and_a_name_that_is_not_assigned_yet_are_read():
    @functools.cache
    def decorated():
        return time.time(), later

    assert [found.word for found in findings(decorated)] == ["time.time()"]
    later = 0
