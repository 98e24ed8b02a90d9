"""Images that are decoded, resampled and converted faster give torch's batches, bit by bit."""

import io
import itertools
import os
import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from stoker.config import Settings
from stoker.fast import place as place_module
from stoker.fast import report as report_module
from stoker.images.native import Native
from stoker.images.pillow import Pillow
from tests.equality.image_files import ARE_FAST
from tests.equality.sides import both, installed

pytestmark = pytest.mark.skipif(not ARE_FAST, reason="fast images are off here")
transforms = pytest.importorskip("torchvision.transforms")
v2 = pytest.importorskip("torchvision.transforms.v2")

OFF = Settings(quiet=True, cache="off")
SIZES = [
    (500, 375),
    (375, 500),
    (333, 500),
    (64, 64),
    (640, 480),
    (17, 9),
    (1, 1),
    (900, 300),
    (8, 200),
]
NORMAL = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
NUM = 54


@pytest.fixture(autouse=True)
def told(monkeypatch):
    """What this test's workers tell."""
    found = report_module.Report()
    monkeypatch.setattr(report_module, "report", found)
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    made = tmp_path_factory.mktemp("files")
    paths = []
    for k in range(NUM):
        width, height = SIZES[k % len(SIZES)]
        rng = np.random.default_rng(k)
        small = rng.integers(0, 256, (height // 6 + 2, width // 6 + 2, 3), dtype=np.uint8)
        image = Image.fromarray(small).resize((width, height), Image.BICUBIC)
        kind = ("baseline", "baseline", "progressive", "grey", "cmyk", "png")[k // len(SIZES)]
        image = image.convert({"grey": "L", "cmyk": "CMYK"}.get(kind, "RGB"))
        paths.append(str(made / f"{k}.{'png' if kind == 'png' else 'jpg'}"))
        options = {"quality": (30, 75, 95)[k % 3], "progressive": kind == "progressive"}
        if kind in ("baseline", "progressive"):
            options["subsampling"] = k % 3
        image.save(paths[-1], **({} if kind == "png" else options))
    return paths


class Photos(Dataset):
    def __init__(self, paths, transform):
        self.paths, self.transform = paths, transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with Path(self.paths[i]).open("rb") as file:
            image = Image.open(file)
            image = image.convert("RGB")
            position = file.tell()
        return self.transform(image), i, position


def by_hand(image):
    image = image.resize((100, 80), Image.LANCZOS).transpose(Image.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(image.crop((3, 4, 50, 60))))


def drawn_upon(image):
    small = image.resize((64, 64))
    before = small.crop((0, 0, 32, 32))
    small.paste((255, 0, 0), (10, 10, 20, 20))
    return torch.from_numpy(np.stack([np.array(small.crop((0, 0, 32, 32))), np.array(before)]))


TO_TENSOR = [transforms.ToTensor(), transforms.Normalize(*NORMAL)]
PIPELINES = {
    "v1": transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(*NORMAL),
        ]
    ),
    "v1 val": transforms.Compose(
        [
            transforms.Resize(256),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize(*NORMAL),
        ]
    ),
    "v2": v2.Compose(
        [
            v2.RandomResizedCrop(96, interpolation=v2.InterpolationMode.BICUBIC),
            v2.RandomHorizontalFlip(),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(*NORMAL),
        ]
    ),
    "ToImage first": v2.Compose(
        [
            v2.ToImage(),
            v2.RandomResizedCrop(64, antialias=True),
            v2.ToDtype(torch.float32, scale=True),
        ]
    ),
    "jitter": transforms.Compose(
        [
            transforms.RandomResizedCrop(96),
            transforms.ColorJitter(0.4, 0.4, 0.4),
            transforms.RandomVerticalFlip(),
            transforms.ToTensor(),
        ]
    ),
    "pad": transforms.Compose(
        [
            transforms.Pad(4),
            transforms.Resize((64, 64)),
            transforms.RandomCrop(50),
            transforms.PILToTensor(),
            transforms.ConvertImageDtype(torch.float32),
        ]
    ),
    "erasing": transforms.Compose(
        [
            transforms.RandomResizedCrop(64),
            transforms.ToTensor(),
            transforms.Normalize(*NORMAL),
            transforms.RandomErasing(p=0.8, inplace=True),
        ]
    ),
    "by hand": by_hand,
    "drawn upon": drawn_upon,
}


@pytest.mark.parametrize("name", PIPELINES)
def test_batches_are_torchs(files, told, name):
    transform = PIPELINES[name]
    resized = v2.Resize((48, 48)) if name == "ToImage first" else None

    def make_loader(num_workers):
        torch.manual_seed(5)
        dataset = Photos(files, transform)
        same = {"v1", "v1 val", "v2", "jitter", "pad", "erasing"}
        if name in same or resized:
            return DataLoader(dataset, batch_size=9, shuffle=True, num_workers=num_workers)
        return DataLoader(dataset, batch_size=None, shuffle=True, num_workers=num_workers)

    def run(loader):
        for _epoch in range(2):
            yield from loader

    both(make_loader, run, settings=OFF)
    assert sum(place.num_made - place.num_checked for place in told.places()) > 0
    assert not any(place.why for place in told.places())
    both(make_loader, run)


@pytest.mark.forks
def test_what_differs_is_found_and_not_delivered(files, told, monkeypatch):
    """Of images that are resampled down first, the compiled code is told the wrong order."""
    right = Pillow.is_vertical_first
    monkeypatch.setattr(Pillow, "is_vertical_first", lambda *args: not right(*args))

    def make_loader(num_workers):
        return DataLoader(Photos(files, PIPELINES["v1 val"]), batch_size=9, num_workers=num_workers)

    def run(loader):
        for _epoch in range(3):
            yield from loader

    both(make_loader, run, settings=OFF)
    differed = [place for place in told.places() if place.why]
    assert differed and all(place.num_checked for place in differed)
    assert all(place.num_made <= 2 * report_module.NUM_PROVE for place in differed)


@pytest.mark.forks
def test_what_goes_wrong_later_is_found(files, told, monkeypatch):
    """After 30 images the compiled code mirrors them: what is compared from time to time is compared with
    what Pillow makes, not with what the compiled code does."""
    num_made = itertools.count()
    right = Native.make

    def wrong(self, recipe, *arguments, **named):
        if next(num_made) > 30:
            recipe = recipe.mirrored()
        return right(self, recipe, *arguments, **named)

    monkeypatch.setattr(Native, "make", wrong)
    monkeypatch.setattr(place_module, "CHECK_EVERY", 8)
    with installed(OFF):
        loader = DataLoader(
            Photos(4 * files[:18], transforms.Compose([transforms.Resize((64, 64)), *TO_TENSOR])),
            batch_size=9,
            num_workers=1,
        )
        for _ in loader:
            pass
    assert [place for place in told.places() if place.why]


def test_off_is_off(files, told):
    def make_loader(num_workers):
        return DataLoader(Photos(files, PIPELINES["v1"]), batch_size=9, num_workers=num_workers)

    both(make_loader, lambda loader: loader, settings=Settings(quiet=True, fast="off"))
    assert not told.places()


def test_the_next_run_compares_no_more_of_what_this_one_has_proven(files, monkeypatch, tmp_path):
    def make_loader(num_workers):
        dataset = Photos(8 * files[: len(SIZES)], PIPELINES["v1 val"])
        return DataLoader(dataset, batch_size=9, num_workers=num_workers)

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    checked = []
    for _run in range(2):
        monkeypatch.setattr(report_module, "report", found := report_module.Report())
        both(make_loader, lambda loader: loader, settings=OFF)
        checked.append({each.place: each.num_checked for each in found.places()})
        found._keep(os.getpid())
    proven = [name for name, num in checked[0].items() if num >= report_module.NUM_PROVE]
    assert proven and not any(checked[1][name] for name in proven)


class Stream(IterableDataset):
    """Photographs one after another: of such a dataset nothing but the decoding is remembered."""

    def __init__(self, paths, transform):
        self.paths, self.transform = paths, transform

    def __iter__(self):
        info = get_worker_info()
        for path in self.paths[info.id :: info.num_workers]:
            yield self.transform(Image.open(path).convert("RGB"))


def test_files_for_which_the_memory_has_no_room_are_not_decoded_whole(files, told):
    def make_loader(num_workers):
        dataset = Stream(8 * files[: len(SIZES)], PIPELINES["v1"])
        return DataLoader(dataset, batch_size=9, num_workers=num_workers)

    def run(loader):
        for _epoch in range(3):
            yield from loader

    both(make_loader, run, settings=Settings(quiet=True, cache_memory=1 << 20))
    assert sum(place.num_made for place in told.places() if "some " in place.place) > 20


def test_audit_compares_everything(files, told):
    def make_loader(num_workers):
        return DataLoader(Photos(files, PIPELINES["v1"]), batch_size=9, num_workers=num_workers)

    both(make_loader, lambda loader: loader, settings=OFF._replace(fast="audit"))
    assert told.places()
    assert all(p.num_made == p.num_checked + p.num_refused for p in told.places())


def broken(kind, file):
    if kind == "cut":
        return file[: len(file) // 2]
    if kind == "without its end":
        return file[:-2]
    if kind == "zeros":
        return file[: len(file) // 2] + bytes(len(file) - len(file) // 2)
    if kind == "more behind":
        return file + bytes(100_000)
    flipped = bytearray(file)
    rng = random.Random(len(file))
    for _ in range(20):
        flipped[rng.randrange(min(200, len(file) // 2), len(file))] ^= 1 << rng.randrange(8)
    return bytes(flipped)


class Broken(Dataset):
    """What becomes of files that are damaged; errors are told as text."""

    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        stages = []
        try:
            image = Image.open(io.BytesIO(self.files[i]))
            stages.append("open")
            image = image.convert("RGB")
            stages.append("convert")
            image = image.crop((5, 5, 40, 60)).resize((30, 30))
            stages.append("resize")
            return torch.from_numpy(np.array(image)), str(stages)
        except Exception as error:
            return re.sub("0x[0-9a-f]+", "", f"{type(error).__name__}: {error}"), str(stages)


@pytest.mark.parametrize("kind", ["cut", "without its end", "zeros", "more behind", "flipped bits"])
def test_damaged_files_fail_where_they_fail(files, kind):
    contents = [broken(kind, Path(path).read_bytes()) for path in files]

    def make_loader(num_workers):
        return DataLoader(Broken(contents), batch_size=None, num_workers=num_workers)

    both(make_loader, lambda loader: loader, settings=OFF)


class Keeper(Photos):
    """Keeps what it has made, and changes it later."""

    def __init__(self, paths, transform):
        super().__init__(paths, transform)
        self.kept = []

    def __getitem__(self, i):
        image, i, _ = super().__getitem__(i)
        self.kept.append(image)
        if len(self.kept) > 3:
            self.kept[-3].add_(1)
        return image, float(sum(x.double().sum() for x in self.kept))


def test_a_dataset_that_keeps_its_samples_gets_what_it_kept(files):
    def make_loader(num_workers):
        return DataLoader(Keeper(files, PIPELINES["v1"]), batch_size=9, num_workers=num_workers)

    def run(loader):
        for image, total in loader:
            image.zero_()  # the trainer's own memory: nobody else sees it
            yield total

    both(make_loader, run, settings=OFF)
