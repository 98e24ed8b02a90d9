"""Slow batches: which are, and what is said of them, by real stacks of torch's own fetchers."""

import collections
import sys
import threading

import pytest
from torch.utils.data import DataLoader, Dataset, IterableDataset

from stoker.stalls.slow import (
    LEAST_S,
    NUM_KNOWN,
    TIMES,
    SlowBatches,
    Where,
    Whereabouts,
    look,
    told,
)


class Started(list):
    """Who was started, in place of a sampler."""

    def __call__(self, batches):
        self.append(batches)


def batches_of(start, usual_s=0.1, num=NUM_KNOWN):
    found = SlowBatches(start)
    for _ in range(num):
        found.begin()
        assert found.took(usual_s, [1]) == ""
    return found


def test_a_batch_of_three_times_the_usual_is_slow():
    found = batches_of(Started())
    assert found.took(0.1 * TIMES * 0.99, [1]) == ""
    assert found.took(0.1 * TIMES * 1.01, [1]).startswith("a batch in 0.30 s, 0.100 as a rule")


def test_short_ones_are_never_slow():
    found = batches_of(Started(), usual_s=0.001)
    assert found.took(LEAST_S * 0.99, [1]) == ""
    assert found.took(LEAST_S * 1.01, [1]) != ""


def test_of_many_short_ones_what_is_usual_is_still_known():
    found = batches_of(Started(), usual_s=0.001, num=1000)
    assert "0.001 as a rule" in found.took(1, [1])
    for _ in range(1000):
        found.took(0.04, [1])
    assert "0.040 as a rule" in found.took(1, [1])


def test_at_first_nobody_knows():
    found = batches_of(Started(), num=NUM_KNOWN - 1)
    assert found.took(99, [1]) == ""


def test_from_the_first_one_on_and_once_the_thread_is_looked_at():
    start = Started()
    found = batches_of(start)
    assert not start
    assert (
        found.took(9, [7, "a", (1, 2), 4, 5])
        == "a batch in 9.00 s, 0.100 as a rule: samples 7, 'a', (1, 2) and 2 more"
    )
    found.took(9, [1])
    assert len(start) == 1


def test_the_sample_that_took_most_is_named():
    seen = {
        Where("7", "load (PIL/ImageFile.py:300)", "__getitem__ (data.py:9)"): 0.5,
        Where("7", "__getitem__ (data.py:10)", "__getitem__ (data.py:10)"): 0.1,
        Where("8", "__getitem__ (data.py:10)", "__getitem__ (data.py:10)"): 0.1,
    }
    assert told(0.8, 0.1, seen, [7, 8]) == (
        "a batch in 0.80 s, 0.100 as a rule: sample 7 for 0.60 s, most of it in load (PIL/ImageFile.py:300), "
        "called by __getitem__ (data.py:9)"
    )


def test_where_all_are_slow_none_is_named():
    seen = {Where(str(k), "f (a.py:1)", "f (a.py:1)"): 0.1 for k in range(8)}
    text = told(0.8, 0.1, seen, list(range(8)))
    assert text == "a batch in 0.80 s, 0.100 as a rule: no single sample, most of it in f (a.py:1)"


class Sneaky:
    """An index whose words would run the script's code."""

    def __repr__(self):
        raise AssertionError("asked")


@pytest.mark.parametrize(
    ("indices", "said"),
    [
        ([1, 2], "samples 1, 2"), ("path", "sample 'path'"), ((3, 4), "sample (3, 4)"), (7, "sample 7"),
        (collections.deque([1]), "sample of type deque"), (None, "sample of type NoneType"),
    ],
)  # fmt: skip
def test_what_a_batch_was_asked_for_by_is_told(indices, said):
    assert told(1, 0.1, {}, indices).endswith(f": {said}")


def test_where_others_were_slow_before_the_thread_is_looked_at_at_once():
    start = Started()
    found = SlowBatches(start, at_once=True)
    found.begin()
    found.begin()
    assert len(start) == 1


@pytest.mark.parametrize(
    ("index", "said"),
    [(Sneaky(), "of type Sneaky"), (True, "of type bool"), ("x" * 99, repr("x" * 60))],
)
def test_no_code_of_the_scripts_is_run(index, said):
    assert f"samples {said}" in told(1, 0.1, {}, [index])


FOUND = []


def here():
    FOUND.append(Whereabouts().of(sys._getframe()))


class Map(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        here()
        return index


class Many(Map):
    def __getitems__(self, indices):
        here()
        return list(indices)


class Stream(IterableDataset):
    def __iter__(self):
        for k in range(2):
            here()
            yield k


def found_of(loader):
    FOUND.clear()
    list(loader)
    assert all(len(found) == 1 and found[0][1] == 1.0 for found in FOUND)
    return [found[0][0] for found in FOUND]


def test_a_stack_of_torchs_fetcher_tells_sample_and_function():
    found = found_of(DataLoader(Map(), batch_size=2))
    assert [where.sample for where in found] == ["0", "1", "2", "3"]
    assert all(where.function.startswith("here (test_slow.py:") for where in found)
    assert all(where.by.startswith("__getitem__ (test_slow.py:") for where in found)


@pytest.mark.parametrize(
    ("dataset", "by"), [(Many(), "__getitems__"), (Stream(), "__iter__")], ids=["many", "stream"]
)
def test_without_an_index_the_function_is_told(dataset, by):
    for where in found_of(DataLoader(dataset, batch_size=2)):
        assert where.sample == ""
        assert where.by.startswith(f"{by} (test_slow.py:")


def test_outside_a_batch_there_is_nothing():
    assert Whereabouts().of(sys._getframe()) == []


def test_a_real_sampler_sees_a_sample():
    came = threading.Event()

    class Slow(Map):
        def __getitem__(self, index):
            batches.seen.clear()
            while not batches.seen:
                came.wait(0.001)
            return index

    batches = SlowBatches(Started())
    sampler = look(batches)
    try:
        DataLoader(Slow(), batch_size=4).__iter__().__next__()
    finally:
        sampler.stop()
    assert {where.sample for where in batches.seen} == {"3"}
