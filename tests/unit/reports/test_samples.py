"""How many samples a batch counts for, whatever it is made of, without a line of its own code run."""

import warnings
from collections import OrderedDict, UserDict, namedtuple

import numpy as np
import pytest
import torch

from stoker.reports.samples import length_of, num_samples

ROWS = torch.zeros(5, 2)
with warnings.catch_warnings(action="ignore"):
    NESTED = torch.nested.nested_tensor([torch.zeros(k) for k in range(5)])
Pair = namedtuple("Pair", "x y")
BATCHES = {
    "a tensor": ROWS,
    "an array": np.zeros((5, 2)),
    "a pair": (ROWS, torch.zeros(5)),
    "a named pair": Pair(ROWS, 1),
    "a dict": {"rows": ROWS},
    "an ordered dict": OrderedDict(rows=ROWS),
    "a mapping that is no dict, as transformers' BatchEncoding": UserDict(rows=ROWS),
    "words": ["a", "b", "c", "d", "e"],
    "a pair in a dict in a mapping": UserDict(inner={"pair": (ROWS, 1)}),
    "a nested tensor": NESTED,
    "a jagged tensor": torch.nested.nested_tensor(
        [torch.zeros(k + 1) for k in range(5)], layout=torch.jagged
    ),
    "a parameter": torch.nn.Parameter(ROWS),
}


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_five_samples_are_five(batch):
    assert num_samples(batch, 8) == 5


class Trap:
    """Raises, whatever it is asked."""

    def __getattribute__(self, name):
        raise AssertionError(name)

    __len__ = __bool__ = __iter__ = __getitem__ = keys = values = lambda *_: 1 / 0


class TrapDict(dict):
    __len__ = __bool__ = __iter__ = __getitem__ = keys = values = lambda *_: 1 / 0


class TrapList(list):
    __len__ = __bool__ = __iter__ = __getitem__ = lambda *_: 1 / 0


class TrapTensor(torch.Tensor):
    shape = property(lambda self: 1 / 0)

    @classmethod
    def __torch_function__(cls, *_, **__):
        raise AssertionError


TRAPS = {
    "an object": (Trap(), 8),
    "a dict": (TrapDict(x=ROWS), 5),
    "a list": (TrapList([ROWS]), 5),
    "objects": ([Trap(), Trap()], 2),
    "a tensor": (ROWS.as_subclass(TrapTensor), 5),
    "nothing": (None, 8),
    "an empty list": ([], 8),
    "a number": (torch.tensor(3.0), 1),
    "more than were asked for": (torch.zeros(99), 8),
}


@pytest.mark.parametrize(("batch", "count"), TRAPS.values(), ids=TRAPS)
def test_the_scripts_own_classes_are_asked_nothing(batch, count):
    assert num_samples(batch, 8) == count


def test_an_index_list_tells_its_length_if_it_can():
    assert length_of([1, 2, 3], True) == length_of((1, 2, 3), True) == 3
    assert length_of(torch.arange(3), True) == 3
    assert (
        length_of([1, 2, 3], False) == length_of(iter([1, 2]), True) == length_of(Trap(), True) == 1
    )
