"""Samples of Albumentations' pipelines, which draw before their first transform: kept up to the pipeline.

Skipped where albumentations is not installed.
"""

from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from stoker.memory.store import shelves
from tests.equality.remembering import AUDIT, ON, epochs, place_of
from tests.equality.sides import both

NUM, EPOCHS = 32, 8


@pytest.fixture(autouse=True)
def fresh_shelf(monkeypatch):
    monkeypatch.setenv("NO_ALBUMENTATIONS_UPDATE", "1")  # else its import asks the network
    monkeypatch.setattr(shelves, "_shelf", None)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("photos")
    for number in range(NUM):
        pixels = np.random.default_rng(number).integers(0, 255, (60, 80, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((640, 480)).save(folder / f"{number}.jpg", quality=95)
    return sorted(map(str, folder.iterdir()))


class Photos(Dataset):
    """As its documentation writes it."""

    def __init__(self, paths, transform):
        self.paths, self.transform = paths, transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        import cv2

        image = cv2.imread(self.paths[index])
        image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
        return self.transform(image=image)["image"]


def make(paths):
    albumentations = pytest.importorskip("albumentations")
    pipeline = [
        albumentations.Resize(height=256, width=256),
        albumentations.RandomCrop(height=224, width=224),
        albumentations.HorizontalFlip(p=0.5),
        albumentations.RandomBrightnessContrast(p=0.2),
        albumentations.Normalize(),
        albumentations.ToTensorV2(),
    ]

    def loader(workers):
        torch.manual_seed(0)
        transform = albumentations.Compose(pipeline, seed=137)
        return DataLoader(Photos(paths, transform), 4, shuffle=True, num_workers=workers)

    return loader


@pytest.mark.parametrize("settings", [ON, pytest.param(AUDIT, marks=pytest.mark.full)])
def test_what_comes_before_the_pipeline_is_remembered(settings, paths):
    both(make(paths), partial(epochs, num=EPOCHS), settings=settings)
    why, counts = place_of(Photos)
    assert why == ""
    assert counts.num_differed == 0
    assert counts.num_hits > NUM
