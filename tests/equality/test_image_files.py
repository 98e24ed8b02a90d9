"""Thousands of image files, sound and damaged, through the pipelines that people write: every batch, every
error and every random number is torch's."""

import io
import random
import re

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch.utils.data import DataLoader, Dataset

from stoker.config import Settings
from stoker.fast import report as report_module
from tests.equality.image_files import ARE_FAST, image_file
from tests.equality.sides import both

pytestmark = pytest.mark.skipif(not ARE_FAST, reason="fast images are off here")
T = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")

NUM_FILES = 5000
NUM_FILES_IN_SHORT = 150
OFF = Settings(quiet=True, cache="off")
NORMAL = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
TO_TENSOR = [T.ToTensor(), T.Normalize(*NORMAL)]
TO_TENSOR_V2 = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(*NORMAL)]
LANCZOS = v2.InterpolationMode.LANCZOS
SIDE = 48


def by_hand(image):
    small = image.resize((SIDE, SIDE), Image.Resampling.LANCZOS, reducing_gap=None)
    small = small.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    return torch.from_numpy(np.array(small, dtype=np.float32)).permute(2, 0, 1)


def upright_thumbnail(image):
    image = ImageOps.exif_transpose(image)
    image.thumbnail((SIDE, SIDE))  # which drafts, where it can
    return v2.functional.pil_to_tensor(ImageOps.pad(image.convert("RGB"), (SIDE, SIDE)))


PIPELINES = {
    "train": T.Compose([T.RandomResizedCrop(SIDE), T.RandomHorizontalFlip(), *TO_TENSOR]),
    "val": T.Compose([T.Resize(SIDE + 8), T.CenterCrop(SIDE), *TO_TENSOR]),
    "train v2": v2.Compose([v2.RandomResizedCrop(SIDE), v2.RandomVerticalFlip(), *TO_TENSOR_V2]),
    "val v2": v2.Compose([v2.Resize(SIDE, LANCZOS), v2.CenterCrop(SIDE), *TO_TENSOR_V2]),
    "tensors first": v2.Compose([v2.ToImage(), v2.RandomResizedCrop(SIDE, antialias=True)]),
    "padded": T.Compose([T.Resize((SIDE, SIDE)), T.RandomCrop(SIDE, padding=4), T.ToTensor()]),
    "jitter": T.Compose([T.RandomResizedCrop(SIDE), T.ColorJitter(0.4, 0.4, 0.4), *TO_TENSOR]),
    "erased": T.Compose([T.Resize((SIDE, SIDE)), *TO_TENSOR, T.RandomErasing(0.8, inplace=True)]),
    "augmented": v2.Compose([v2.Resize((SIDE, SIDE)), v2.RandAugment(), *TO_TENSOR_V2]),
    "bytes": T.Compose([T.RandomResizedCrop(SIDE, interpolation=LANCZOS), T.PILToTensor()]),
    "by hand": by_hand,
    "upright thumbnail": upright_thumbnail,
}
BEFORE_RGB = {"upright thumbnail"}  # pipelines that see the file's own mode


class Files(Dataset):
    """(image, error, random numbers that follow) of each file."""

    def __init__(self, paths, name):
        self.paths, self.transform = paths, PIPELINES[name]
        self.converts = name not in BEFORE_RGB
        self.is_bytes = not self.converts or name in ("bytes", "tensors first")

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        error, made = "", torch.zeros(0)
        try:
            with self.opened(i) as image:
                made = self.transform(image.convert("RGB") if self.converts else image)
        except Exception as caught:
            error = re.sub("0x[0-9a-f]+", "", f"{type(caught).__name__}: {caught}")
        if made.numel() == 0:
            dtype = torch.uint8 if self.is_bytes else torch.float32
            made = torch.zeros((3, SIDE, SIDE), dtype=dtype)
        return made.as_subclass(torch.Tensor), error, torch.rand(1), random.random()

    def opened(self, i):
        """Every third one from memory."""
        if i % 3:
            return Image.open(self.paths[i])
        return Image.open(io.BytesIO(self.paths[i].read_bytes()))


@pytest.fixture
def told(monkeypatch):
    """What this test's workers tell."""
    found = report_module.Report()
    monkeypatch.setattr(report_module, "report", found)
    return found


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("image-files")


def paths_of(folder, num):
    for number in range(num):
        if not (folder / str(number)).exists():
            (folder / str(number)).write_bytes(image_file(number))
    return [folder / str(number) for number in range(num)]


@pytest.mark.parametrize(
    "num", [NUM_FILES_IN_SHORT, pytest.param(NUM_FILES, marks=pytest.mark.full)]
)
@pytest.mark.parametrize("name", PIPELINES)
def test_an_epoch_of_all_files_is_torchs(folder, told, name, num):
    paths = paths_of(folder, num)

    def make_loader(num_workers):
        return DataLoader(Files(paths, name), batch_size=25, shuffle=True, num_workers=num_workers)

    both(make_loader, lambda loader: loader, settings=OFF)
    assert told.places()
    assert not [place for place in told.places() if place.why]
