"""A frozen copy is what was frozen, and shares what was shared."""

import multiprocessing

import pytest
import torch

from stoker.local.frozen import Frozen, TooLarge

MIB = 1 << 20


def test_what_thaws_is_as_it_was_and_twice_is_two():
    value = {"a": [1, 2], "x": torch.arange(3.0)}
    frozen = Frozen(value, MIB)
    value["a"].append(3)
    value["x"].add_(1)
    one, two = frozen.thaw(), frozen.thaw()
    assert one["a"] == [1, 2] and one["x"].tolist() == [0, 1, 2]
    one["a"].append(9)
    one["x"].add_(9)
    assert two["a"] == [1, 2] and two["x"].tolist() == [0, 1, 2]


def test_what_is_shared_with_other_processes_is_not_copied():
    lock = multiprocessing.get_context("fork").Lock()
    shared = torch.zeros(2).share_memory_()
    thawed_lock, thawed = Frozen((lock, shared), MIB).thaw()
    thawed[0] = 5
    assert shared.tolist() == [5, 0]
    assert thawed_lock is lock


def test_a_large_value_is_refused_before_it_is_copied_whole():
    with pytest.raises(TooLarge, match="larger than 1 MiB"):
        Frozen([bytes(MIB // 4)] * 8 + [torch.zeros(MIB)], MIB)


def test_what_cannot_be_pickled_says_so():
    with pytest.raises(Exception, match="lambda"):
        Frozen(lambda: 1, MIB)
