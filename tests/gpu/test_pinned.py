"""pin_memory=True: batches in torch's own pinned memory, with the values that torch would give."""

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from tests.equality.pinnable import BROKEN, BROKEN_IDS, Own, Samples, first_words
from tests.equality.sides import both, installed

LARGE, SMALL = (3, 128, 128), (4,)


def make(dataset: Dataset, **options: Any):
    return lambda w: DataLoader(dataset, 4, num_workers=w, pin_memory=True, **options)


@pytest.mark.parametrize("shape", [LARGE, SMALL], ids=["large", "small"])
@pytest.mark.parametrize("persistent", [False, True])
def test_pinned_batches_are_torchs_own_and_pinned(shape, persistent):
    def run(loader):
        for _ in range(2):
            for batch in loader:
                yield batch["x"].is_pinned(), batch

    plain, _ = both(make(Samples(shape), persistent_workers=persistent), run)
    assert len(plain.digests) == 12


@pytest.mark.parametrize("shape", [LARGE, SMALL], ids=["large", "small"])
def test_a_transfer_in_flight_is_not_overwritten(shape):
    """x.to("cuda", non_blocking=True); del x: the copy must still read what x held."""

    def run(loader):
        on_device = []
        for batch in loader:
            on_device.append(batch["x"].to("cuda", non_blocking=True))
            del batch
        torch.cuda.synchronize()
        yield from (x.cpu() for x in on_device)

    both(make(Samples(shape, 96)), run)


def test_a_batch_type_with_its_own_pin_memory_is_asked_once():
    both(
        make(Samples(LARGE), collate_fn=Own),
        lambda loader: ((b.x.is_pinned(), b.num_pinned, b.x) for b in loader),
    )


def test_a_loader_is_left_in_the_middle_and_begun_again():
    def run(loader):
        for _ in range(3):
            for number, batch in enumerate(loader):
                yield batch
                if number == 2:
                    break

    both(make(Samples(LARGE)), run)


@pytest.mark.parametrize(("dataset", "collate", "error"), BROKEN, ids=BROKEN_IDS)
def test_an_error_arrives_with_its_type_and_words(dataset, collate, error):
    both(make(dataset, collate_fn=collate), first_words(error))


def test_kept_batches_stay_as_they_were():
    with installed():
        kept = list(make(Samples(LARGE, 96))(2))
        copies = [batch["x"].clone() for batch in kept]
        for batch in make(Samples(LARGE, 96))(2):
            assert batch["x"].is_pinned()
        assert all(torch.equal(a["x"], b) for a, b in zip(kept, copies, strict=True))
