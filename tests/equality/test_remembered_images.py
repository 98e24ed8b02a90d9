"""Normalised images are remembered in a quarter of their bytes, and their batches are torch's."""

import random

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset, default_convert

from stoker.memory import phases
from stoker.memory.store import checksum as checksum_module
from stoker.memory.store import shelves
from stoker.memory.store.coding import encoding
from stoker.wire.palette import palette
from tests.equality.remembering import AUDIT, ON, damaging, epochs, place_of, values_open
from tests.equality.sides import both

NUM, SIZE = 24, 96
RAW_NBYTES = 3 * SIZE * SIZE * 4
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])

needs_library = pytest.mark.skipif(palette is None, reason="palette.c was not built here")


@pytest.fixture(autouse=True)
def fresh_shelf(monkeypatch):
    monkeypatch.setattr(shelves, "_shelf", None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Photographs of noise on a slope: of the 256 values of each channel most are taken."""
    made = tmp_path_factory.mktemp("photos")
    slope = np.asarray(Image.radial_gradient("L").resize((SIZE, SIZE)), np.int16)
    for k in range(NUM):
        noise = np.random.default_rng(k).integers(-60, 60, (SIZE, SIZE, 3))
        pixels = (slope[..., None] + noise).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(made / f"{k}.png")
    return made


class Photos(Dataset):
    """(image, class), as torchvision's ToTensor and Normalize make the image."""

    def __init__(self, folder):
        self.paths = [str(folder / f"{k}.png") for k in range(NUM)]

    def __len__(self):
        return NUM

    def loaded(self, i):
        pixels = np.array(Image.open(self.paths[i]).convert("RGB"))
        x = torch.from_numpy(pixels).permute(2, 0, 1).contiguous().float().div(255)
        return x.sub_(MEAN[:, None, None]).div_(STD[:, None, None])

    def __getitem__(self, i):
        return self.loaded(i), i % 7


class WithMasks(Photos):
    def __getitem__(self, i):
        image = self.loaded(i)
        return {"x": image, "inner": [i, {"mask": (image[0] > 0).long()}], "name": self.paths[i]}


class ChannelsLast(Photos):
    """As Albumentations' ToTensorV2 leaves it."""

    def __getitem__(self, i):
        return self.loaded(i).permute(1, 2, 0).contiguous().permute(2, 0, 1)


class Arrays(Photos):
    def __getitem__(self, i):
        return self.loaded(i).numpy().astype(np.float32).copy(), np.float32(i)


class Halves(Photos):
    def __getitem__(self, i):
        return self.loaded(i).bfloat16(), self.loaded(i).double()


class ThenFlipped(Photos):
    """The cut lies behind the image, whose memory the second half writes to."""

    def __getitem__(self, i):
        image = self.loaded(i)
        if random.random() < 0.5:
            image = image.flip(2)
        image[:, 0, 0] = random.random()
        return image, i


class OfTwoKinds(Photos):
    """The first sample of a batch need not be like the next ones."""

    def __getitem__(self, i):
        image = self.loaded(i)
        return (image, i) if i % 3 else (image.flatten().reshape(3, SIZE, SIZE), i)


KINDS = [Photos, WithMasks, ChannelsLast, Arrays, Halves, ThenFlipped, OfTwoKinds]


def loader_of(kind, folder, batch_size=4, **options):
    return lambda workers: DataLoader(
        kind(folder), batch_size=batch_size, shuffle=True, num_workers=workers, **options
    )


def listed(samples):
    """A collate function of the script's, which changes its samples in place."""
    for sample in samples:
        sample[0].add_(1)
    return [sample[0] for sample in samples], sum(sample[1] for sample in samples)


def six(loader):
    return epochs(loader, 6)


def nbytes_each(kind):
    why, counts = place_of(kind)
    assert why == ""
    assert counts.num_hits > NUM
    assert counts.num_differed == 0
    return counts.stored_nbytes / counts.num_stored


@needs_library
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_images_are_kept_in_a_quarter_of_their_bytes(kind, folder):
    both(loader_of(kind, folder), six, settings=ON)
    raw_nbytes = {
        WithMasks: RAW_NBYTES + 8 * SIZE * SIZE, Halves: 2.5 * RAW_NBYTES,
    }.get(kind, RAW_NBYTES)  # fmt: skip
    assert nbytes_each(kind) < 0.33 * raw_nbytes


@pytest.mark.forks
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_without_the_library_they_are_kept_as_they_are(kind, folder, monkeypatch):
    monkeypatch.setattr(encoding, "palette", None)
    monkeypatch.setattr(checksum_module, "palette", None)
    both(loader_of(kind, folder), six, settings=ON)
    assert nbytes_each(kind) > RAW_NBYTES


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_audit_finds_what_it_made(kind, folder):
    both(loader_of(kind, folder), epochs, settings=AUDIT)
    nbytes_each(kind)


@pytest.mark.parametrize("kind", [Photos, ThenFlipped])
def test_a_collate_function_of_the_scripts_may_change_its_samples(kind, folder):
    both(loader_of(kind, folder, collate_fn=listed), six, settings=ON)
    nbytes_each(kind)


@pytest.mark.parametrize("kind", [Photos, ChannelsLast, WithMasks])
def test_samples_without_a_batch_keep_their_strides(kind, folder):
    def strides(loader):
        for sample in six(loader):
            image = sample["x"] if isinstance(sample, dict) else sample
            image = image[0] if isinstance(image, list) else image
            yield sample, image.stride()

    make = loader_of(kind, folder, batch_size=None, collate_fn=default_convert)
    both(make, strides, settings=ON)
    nbytes_each(kind)


def test_a_subset_is_served_too(folder):
    def make(workers):
        photos = Subset(Photos(folder), range(NUM))
        return DataLoader(photos, batch_size=4, shuffle=True, num_workers=workers)

    both(make, six, settings=ON)
    nbytes_each(Photos)


@pytest.mark.forks
@pytest.mark.parametrize("kind", [Photos, WithMasks, ThenFlipped])
def test_a_shelf_that_is_damaged_between_epochs_changes_no_image(kind, folder, monkeypatch):
    both(loader_of(kind, folder), damaging(monkeypatch), settings=ON)


@pytest.mark.forks
def test_values_that_are_damaged_under_living_workers_change_no_image(folder, monkeypatch):
    monkeypatch.setattr(phases, "FREE_S", 100.0)
    num_damaged, num_hits = [], []

    def run(loader):
        for epoch in range(12):
            yield from loader
            shelf = shelves.own_shelf()
            if epoch == 9 and shelf is not None:  # every worker has served every image
                num_hits.append(place_of(Photos)[1].num_hits)
                with values_open(shelf):
                    for _, entry in shelf._index.entries():
                        shelf.view(entry)[entry.nbytes // 2] ^= 1
                        num_damaged.append(entry)

    both(loader_of(Photos, folder, persistent_workers=True), run, settings=ON)
    counts = place_of(Photos)[1]
    assert len(num_damaged) == NUM
    assert num_hits[0] > 3 * NUM
    assert counts.num_differed == 0
