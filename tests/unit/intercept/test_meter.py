"""How many samples a batch counts for, whatever it is made of."""

from collections import UserDict

import pytest
import torch

from stoker.intercept.meter import num_samples

ROWS = torch.zeros(5, 2)
BATCHES = {
    "a tensor": ROWS,
    "a pair": (ROWS, torch.zeros(5)),
    "a dict": {"rows": ROWS},
    "a mapping that is no dict, as transformers' BatchEncoding": UserDict(rows=ROWS),
    "words": ["a", "b", "c", "d", "e"],
    "a pair in a dict in a mapping": UserDict(inner={"pair": (ROWS, 1)}),
}


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_five_samples_are_five(batch):
    assert num_samples(batch, is_batched=True) == 5


def test_what_is_not_batched_is_one_sample():
    assert num_samples(ROWS, is_batched=False) == 1
