"""What shared tensors hold is compared; too many of them are not, and count as changed."""

import pytest
import torch

from stoker.shared_tensors import LEAST_NBYTES, MAX_NBYTES, SharedTensors


def test_a_change_anywhere_in_a_storage_is_seen():
    whole = torch.tensor([1.0, float("nan"), 3.0])
    shared = SharedTensors([whole[1:2].untyped_storage()])
    assert shared.holds(whole.untyped_storage())
    assert shared.is_as_it_was
    whole[2] = 4
    assert not shared.is_as_it_was


def test_many_tensors_of_one_storage_count_once():
    whole = torch.zeros(2 * MAX_NBYTES // LEAST_NBYTES)
    shared = SharedTensors()
    copies = {shared.add(each.untyped_storage()).data_ptr() for each in whole}
    assert len(copies) == 1
    assert shared.is_as_it_was


@pytest.mark.parametrize(
    "sizes", [[MAX_NBYTES + 1], [1] * (MAX_NBYTES // LEAST_NBYTES + 1)], ids=["large", "many"]
)
def test_what_would_take_too_long_counts_as_changed(sizes):
    tensors = [torch.zeros(size, dtype=torch.uint8) for size in sizes]
    shared = SharedTensors([each.untyped_storage() for each in tensors])
    assert not shared.holds(tensors[0].untyped_storage())
    assert not shared.is_as_it_was
