"""The fingerprint: it must move when anything that a job can reach moves."""

import collections
import contextlib
import functools
import os
import random
import select
import socket
import sys
import types
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import pytest
import torch

from stoker.clock import Deadline, thread_cpu_s
from stoker.fingerprint import walker
from stoker.fingerprint.fingerprint import TooLarge, Unwatchable, fingerprint


def look(dataset, seconds=10.0):
    return fingerprint({"dataset": dataset}, Deadline(seconds))


@pytest.fixture
def package(monkeypatch):
    outer, inner = types.ModuleType("outer"), types.ModuleType("outer.inner")
    outer.inner, inner.count = inner, 0
    monkeypatch.setitem(sys.modules, "outer", outer)
    monkeypatch.setitem(sys.modules, "outer.inner", inner)
    monkeypatch.setitem(globals(), "outer", outer)
    return outer


class Slots:
    __slots__ = ("__hidden", "__weakref__", "first")


class More(Generic[TypeVar("T")], Slots, collections.abc.Sized):
    __slots__ = ("second",)


@dataclass(slots=True, weakref_slot=True)
class Fields:
    number: int = 0


WITH_SLOTS = [Slots, More, type("Dict", (More,), {}), Fields, torch.nn.Linear, torch.utils.data.DataLoader]  # fmt: skip
OF_C = {  # by instances; from Python 3.12 on no longer told from classes of Python by their flags
    "a text file": lambda: Path(os.devnull).open(),  # noqa: SIM115
    "a file": lambda: Path(os.devnull).open("rb"),  # noqa: SIM115
    "a file without a buffer": lambda: Path(os.devnull).open("rb", buffering=0),  # noqa: SIM115
    "a folder's entries": lambda: os.scandir("/"),
    "a socket": lambda: socket.socket(),
    "a compressor": lambda: zlib.compressobj(),
    "a poll object": lambda: select.epoll(),
}


@pytest.mark.parametrize("kind", WITH_SLOTS)
def test_an_instance_of_a_class_of_pythons_holds_its_attributes_and_nothing_else(kind):
    assert walker._is_plain_python(kind)


@pytest.mark.parametrize("make", OF_C.values(), ids=OF_C)
def test_what_is_kept_in_c_cannot_be_looked_into(make):
    held = make()
    with contextlib.closing(held) if hasattr(held, "close") else contextlib.nullcontext():
        with pytest.raises(Unwatchable):
            look(HoldsModule(held))


class CountsInSubmodule:
    def __getitem__(self, i):
        outer.inner.count += 1  # noqa: F821  # the fixture makes it
        return i


class CountsByLocalImport:
    def __getitem__(self, i):
        import outer.inner

        outer.inner.count += 1
        return i


class HoldsModule:
    def __init__(self, module):
        self.module = module

    def __getitem__(self, i):
        self.module.count += 1
        return i


@functools.lru_cache
def noise(i):
    return random.random()


class Remembers:
    def __getitem__(self, i):
        return noise(i)


class CountingList(list):
    count = 0

    def __getitem__(self, i):
        CountingList.count += 1
        return i


class SwapsLambda:
    def __init__(self):
        self.make(1)

    def make(self, which):
        self.f = (lambda i: 1) if which else (lambda i: 2)

    def __getitem__(self, i):
        self.make(0)
        return i


def moves_or_is_unwatchable(dataset):
    try:
        before = look(dataset)
        dataset[0]
        return look(dataset) != before
    except Unwatchable:
        return True


def test_a_counter_in_a_submodule_moves_it(package):
    assert moves_or_is_unwatchable(CountsInSubmodule())


def test_a_counter_in_a_module_imported_in_the_function_moves_it(package):
    assert moves_or_is_unwatchable(CountsByLocalImport())


def test_a_counter_in_a_module_held_as_an_attribute_moves_it(package):
    assert moves_or_is_unwatchable(HoldsModule(package.inner))


def test_what_lru_cache_remembers_moves_it():
    noise.cache_clear()
    assert moves_or_is_unwatchable(Remembers())


def test_a_class_attribute_of_a_list_subclass_moves_it():
    assert moves_or_is_unwatchable(CountingList([1]))


def test_another_lambda_of_the_same_name_moves_it():
    assert moves_or_is_unwatchable(SwapsLambda())


@pytest.mark.parametrize("make", [np.zeros, torch.zeros], ids=["array", "tensor"])
def test_a_large_array_is_not_read_past_the_deadline(make):
    class Holds:
        x = make(1 << 25)  # 128 MB or more

    holder = Holds()
    holder.x = Holds.x
    with pytest.raises(Unwatchable):
        look(holder, seconds=0.005)


def test_a_memory_mapped_file_is_not_read_into_memory(tmp_path):
    class Holds:
        pass

    file = tmp_path / "tokens.bin"
    with file.open("wb") as sparse:
        sparse.truncate(1 << 28)
    holder = Holds()
    holder.tokens = np.memmap(file, dtype=np.uint16, mode="r")
    start_s = thread_cpu_s()
    before = look(holder)
    assert thread_cpu_s() - start_s < 0.05, "a fifth of what hashing it would take"
    holder.tokens = holder.tokens[1:]
    assert look(holder) != before


@pytest.mark.parametrize("shown", [lambda tokens: tokens, np.asarray], ids=["memmap", "array"])
def test_a_mapped_file_that_somebody_writes_to_moves_it(tmp_path, shown):
    file = tmp_path / "tokens.bin"
    file.write_bytes(bytes(1 << 20))
    os.utime(file, ns=(0, 0))  # or both writes may fall into one tick of the kernel's clock
    holder = types.SimpleNamespace(tokens=shown(np.memmap(file, dtype=np.uint16, mode="r")))
    before = look(holder)
    assert look(holder) == before
    with file.open("r+b") as opened_file:
        opened_file.seek(1 << 19)
        opened_file.write(b"other")
    assert look(holder) != before


def test_what_is_too_large_is_named_before_it_is_read():
    holder = types.SimpleNamespace(small=np.zeros(10), large=torch.zeros(1 << 28))
    start_s = thread_cpu_s()
    with pytest.raises(
        TooLarge, match=r"^dataset\.large: 1\.0 GiB, and all together more than 0\.5"
    ):
        fingerprint({"dataset": holder}, Deadline(10), limit_nbytes=1 << 29)
    assert thread_cpu_s() - start_s < 0.1
    fingerprint({"dataset": holder.small}, Deadline(10), limit_nbytes=1 << 29)


class Pairs:
    def __init__(self, num):
        self.samples = [(f"photo-{k}.jpg", k % 10, {"box": [k, 1.5, None]}) for k in range(num)]


@pytest.mark.parametrize(
    "change",
    [
        lambda samples: samples.__setitem__(5000, ("other.jpg", 3, {})),
        lambda samples: samples[7000][2]["box"].append(1),
        lambda samples: samples.reverse(),
        lambda samples: samples.append(samples[0]),
        lambda samples: samples[17][2].update(box=[17, 1.5, 0]),
        lambda samples: samples.__setitem__(9, (b"photo-9.jpg", 9, samples[9][2])),
        lambda samples: samples.__setitem__(1, ("photo-1.jpg", True, samples[1][2])),
        lambda samples: samples.__setitem__(9, (Name("photo-9.jpg"), 9, samples[9][2])),
    ],
)
def test_a_long_list_moves_it_with_whatever_changes_in_it(change):
    dataset = Pairs(10_000)
    before = look(dataset)
    assert look(dataset) == before
    change(dataset.samples)
    assert look(dataset) != before


class Name(str):
    """A str with something beside its letters."""


def test_what_a_long_list_of_a_users_objects_holds_moves_it():
    dataset = [Name(f"photo-{k}") for k in range(200)]
    before = look(dataset)
    dataset[150].seen = 1
    assert look(dataset) != before


def test_a_list_that_holds_itself_can_be_watched():
    dataset = list(range(100))
    dataset.append(dataset)
    before = look(dataset)
    assert look(dataset) == before


def test_a_long_list_costs_a_tenth_of_what_its_items_would(capsys):
    bulk, one_by_one = Pairs(20_000), Pairs(20_000)
    one_by_one.samples = [(*sample, Name("x")) for sample in one_by_one.samples]
    times_s = []
    for dataset in (bulk, one_by_one):
        start_s = thread_cpu_s()
        look(dataset)
        times_s.append(thread_cpu_s() - start_s)
    with capsys.disabled():
        print(f" 20,000 samples: {times_s[0] * 1e3:.1f} ms, item by item {times_s[1] * 1e3:.1f} ms")
    assert times_s[0] < 0.3 * times_s[1]


def test_a_banned_name_cannot_be_watched():
    def reads_the_pid(i):
        return os.getpid() + i

    look(reads_the_pid)
    with pytest.raises(Unwatchable, match="reads_the_pid uses getpid"):
        fingerprint({"reads_the_pid": reads_the_pid}, Deadline(10), frozenset({"getpid"}))
