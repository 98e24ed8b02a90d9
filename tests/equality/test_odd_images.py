"""Scripts that do the unexpected with images that wait get what they get without stoker."""

import copy
import functools
import io
import mmap
import os
import pickle
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, JpegImagePlugin
from torch.utils.data import DataLoader, Dataset

from stoker.config import Settings
from stoker.fast import report as report_module
from stoker.images import lazy as lazy_module
from tests.equality.image_files import ARE_FAST
from tests.equality.sides import both, installed

pytestmark = pytest.mark.skipif(not ARE_FAST, reason="fast images are off here")
T = pytest.importorskip("torchvision.transforms")
F = pytest.importorskip("torchvision.transforms.functional")
v2 = pytest.importorskip("torchvision.transforms.v2")

OFF = Settings(quiet=True, cache="off")
NORMAL = T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
TRAIN = T.Compose([T.RandomResizedCrop(96), T.RandomHorizontalFlip(), T.ToTensor(), NORMAL])


@pytest.fixture(autouse=True)
def told(monkeypatch):
    """What this test's workers tell."""
    found = report_module.Report()
    monkeypatch.setattr(report_module, "report", found)
    return found


@functools.cache
def files():
    made = []
    for k in range(24):
        small = np.random.default_rng(k).integers(0, 256, (30, 40, 3), dtype=np.uint8)
        file = io.BytesIO()
        Image.fromarray(small).resize((240, 180)).save(file, "JPEG", subsampling=k % 3)
        made.append(file.getvalue())
    return made


def opened(i):
    return Image.open(io.BytesIO(files()[i]))


def image_of(i):
    return opened(i).convert("RGB")


def turned_in_place(data, i):
    x = TRAIN(image_of(i))
    return x.transpose_(1, 2) if i % 2 else x


def more_dimensions(data, i):
    return TRAIN(image_of(i)).unsqueeze_(0)


def twice(data, i):
    x = TRAIN(image_of(i))
    return x, x


def pairs_second_first(data, i):
    second = TRAIN(image_of((i + 1) % 24))
    return TRAIN(image_of(i)), second


def saved_sizes(data, i):
    x, file = TRAIN(image_of(i)), io.BytesIO()
    torch.save(x, file)
    # torch pickles the storage's address in decimals: 14 digits, or 15 if another thread's malloc gave it.
    address = str(x.untyped_storage()._cdata).encode()
    told = (
        len(file.getvalue()),
        len(pickle.dumps(x).replace(address, b"")),
        x.storage_offset(),
        x.untyped_storage().nbytes(),
    )
    return x, str(told), copy.deepcopy(x)


def kept_views(data, i):
    x = TRAIN(image_of(i))
    data.kept.append(x[0, :3])
    if len(data.kept) > 2:
        data.kept[-2].fill_(i)
    return x, torch.stack(data.kept[-2:]).sum()


def forked(data, i):
    image = image_of(i)
    pid = os.fork()
    if pid == 0:
        TRAIN(image_of((i + 5) % 24))
        os._exit(0)
    x = TRAIN(image)
    os.waitpid(pid, 0)
    return x


def in_threads(data, i):
    images = [image_of(k) for k in range(i % 20, i % 20 + 4)]
    with ThreadPoolExecutor(4) as pool:
        arrays = list(pool.map(lambda image: np.array(image.resize((50, 50))), images))
    return torch.from_numpy(np.stack(arrays))


def drawn_by_threads(data, i):
    image = image_of(i)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda k: image.putpixel((k, 0), (k, 0, 0)), range(16)))
    return torch.from_numpy(np.array(image))


def drawn_upon(data, i):
    image = image_of(i).resize((64, 64))
    draw = ImageDraw.Draw(image)
    before = image.crop((0, 0, 60, 60))
    draw.rectangle((2, 2, 30, 30), fill=(255, 0, 0))
    pixels = image.load()
    half = image.resize((32, 32))
    pixels[40, 40] = (0, 255, 0)
    return [torch.from_numpy(np.array(each)) for each in (before, image, half)]


def patches_swapped(data, i):
    image = image_of(i)
    a, b = image.crop((0, 0, 120, 180)), image.crop((120, 0, 240, 180))
    image.paste(b, (0, 0))
    image.paste(a, (120, 0))
    return torch.from_numpy(np.array(image))


def cached(data, i):
    if i % 5 not in data.cache:
        data.cache[i % 5] = image_of(i % 5).resize((32, 32))
    return F.to_tensor(data.cache[i % 5]), TRAIN(data.cache[i % 5])


def many_crops(data, i):
    image = image_of(i)
    return torch.stack([TRAIN(image) for _ in range(6)])


def wrong_boxes(data, i):
    image, said = opened(i), []
    for step in (
        lambda: image.crop((10, 10, 5, 5)),
        lambda: (image.fp is None, image.tile != []),
        lambda: image.resize((0, 5)),
        lambda: image.resize((2**31, 10)),
        lambda: image.transpose(0.0),
        lambda: image.crop((-5, -5, 20, 20)).getpixel((3, 3)),
        lambda: image.resize((10, 10), 99),
        lambda: image.crop(None).size,
        lambda: (image.close(), image.convert("RGB")),
        lambda: image.convert("RGB").tobytes()[:3],
    ):
        try:
            said.append(repr(step())[:60].partition(" at 0x")[0])
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
    return str(said)


def on_meta(data, i):
    with torch.device("meta"):
        return str(F.pil_to_tensor(image_of(i)).device)


class Loud(JpegImagePlugin.JpegImageFile):
    def load(self):
        self.info["loaded"] = self.info.get("loaded", 0) + 1
        return super().load()


def another_class(data, i):
    image = opened(i)
    image.__class__ = Loud
    small = image.resize((20, 20))
    return torch.from_numpy(np.array(small)), str(image.info.get("loaded"))


def load_replaced(data, i):
    with mock.patch.object(JpegImagePlugin.JpegImageFile, "load", side_effect=OSError("mine")):
        try:
            image_of(i)
        except OSError as error:
            return str(error)
    return "not called"


def forward_replaced(data, i):
    if i == 9:
        data.forward = lambda self, x: x * 2
        T.Normalize.forward = data.forward
    return TRAIN(image_of(i))


def warns(data, i):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")

        class Warns:
            def __call__(self, image):
                warnings.warn("so", stacklevel=2)
                return image

        T.Compose([Warns(), T.Resize(20), T.ToTensor()])(image_of(i))
    return str([(w.filename.rpartition("/")[2], w.lineno) for w in caught])


def adobes(data, i):
    """Files that stoker refuses, before those that it does not."""
    file = files()[i]
    if i < 10:
        at = file.index(b"\xff\xe0")
        nbytes = int.from_bytes(file[at + 2 : at + 4], "big") + 2
        adobe = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00"
        file = file[:at] + adobe + file[at + nbytes :]
    return torch.from_numpy(np.array(Image.open(io.BytesIO(file)).convert("RGB").resize((40, 40))))


def detached(data, i):
    """In place: what torch refuses of a view."""
    x = TRAIN(image_of(i)).detach_()
    y = T.Compose([T.PILToTensor(), T.ConvertImageDtype(torch.float32)])(image_of(i)).detach_()
    return x, y, x._is_view(), y.stride()


def compiled(data, i):
    """Eagerly, by Dynamo: it reads the code of what it is given."""
    if "compiled" not in data.cache:
        resize = v2.Compose([v2.Resize((20, 20)), v2.ToDtype(torch.float32, scale=True)])
        data.cache["compiled"] = torch.compile(resize, backend="eager")
    image = F.pil_to_tensor(image_of(i))
    return data.cache["compiled"](image)


def copied(data, i):
    image = image_of(i).resize((60, 50))
    others = copy.copy(image), copy.deepcopy(image), pickle.loads(pickle.dumps(image))
    image.paste((1, 2, 3), (0, 0, 9, 9))
    return torch.from_numpy(np.stack([np.array(each) for each in (image, *others)]))


def one_dict(data, i):
    """Images that share all that they are: who writes to one writes to the others."""
    image = Image.new("RGB", (80, 60), (i, 2, 3))
    parts = [image.crop((0, 0, 70, 60)), image.crop((5, 0, 80, 60)), image.resize((40, 30))]
    for part in parts[:2]:
        part.__dict__ = image.__dict__
    parts[1].putpixel((1, 1), (9, 9, 9))
    opened, twin = image_of(i), Image.Image()
    twin.__dict__ = opened.__dict__
    small = twin.resize((30, 30))
    twin.paste((1, 2, 3), (0, 0, 9, 9))
    opened.info["told"] = i
    pixels = [np.array(each).sum() for each in (image, *parts, opened, twin, small)]
    return str(pixels), twin.info["told"]


def pointed_at(data, i):
    """A pointer to an image's pixels is good for as long as the image."""
    image = Image.new("RGB", (80, 60), (i, 2, 3))
    pointer = image.getim()
    small = image.resize((40, 30)).crop((0, 0, 20, 20))
    before = np.array(small)
    image.putpixel((0, 0), (255, 0, 0))
    same = repr(pointer) == repr(image.getim())
    return torch.from_numpy(np.array(image)), torch.from_numpy(before), same


def read_by_threads(data, i):
    """While the worker's own thread resizes and converts the same image."""
    image = image_of(i)
    with ThreadPoolExecutor(3) as pool:
        sums = [pool.submit(lambda: int(np.array(image).sum())) for _ in range(12)]
        made = [F.to_tensor(image.resize((30 + k, 30))).sum() for k in range(12)]
        x = F.to_tensor(image)
    return x, torch.stack(made), str([each.result() for each in sums])


def filled_in(data, i):
    """The byte behind red, green and blue."""
    image = image_of(i)
    images = image, image.crop((3, 3, 90, 80)), image.resize((30, 30)), image.resize((300, 200))
    images += (images[1].transpose(Image.FLIP_LEFT_RIGHT),)
    return str([hash(each.tobytes("raw", "RGBX")) for each in images])


def mocked(data, i):
    """For one call in the middle of a batch."""
    with mock.patch("torchvision.transforms.functional.normalize", lambda x, *_args, **_named: -x):
        other = TRAIN(image_of(i))
    return other, TRAIN(image_of(i))


def unclosed(data, i):
    """Where Python warns of a file that nobody has closed."""
    with tempfile.NamedTemporaryFile() as made, warnings.catch_warnings(record=True) as caught:
        made.write(files()[i])
        made.flush()
        path = Path(made.name)
        warnings.simplefilter("always")
        T.ToTensor()(Image.open(path.open("rb")))
        F.to_tensor(Image.open(path.open("rb")).convert("RGB"))
        Image.open(path.open("rb")).resize((9, 9))
        Image.open(path.open("rb")).load()
    return str([(w.filename.rpartition("/")[2], w.lineno) for w in caught])


class Odd(Dataset):
    def __init__(self, make):
        self.make, self.kept, self.cache = make, [], {}

    def __len__(self):
        return 24

    def __getitem__(self, i):
        return self.make(self, i)


SCRIPTS = [
    turned_in_place, more_dimensions, twice, pairs_second_first, saved_sizes, kept_views, forked,
    in_threads, drawn_by_threads, drawn_upon, patches_swapped, cached, many_crops, wrong_boxes,
    on_meta, another_class, load_replaced, warns, adobes, detached, compiled, copied, one_dict, pointed_at,
    read_by_threads, filled_in, mocked, unclosed,
]  # fmt: skip


# Of an image that a capsule points into Pillow counts one holder more.
NEVER_WAIT = {load_replaced, on_meta, another_class, pointed_at}


class Album(Dataset):
    """Keeps a small part of every large image that it has opened. Yields how much memory that takes."""

    def __init__(self):
        file = io.BytesIO()
        Image.new("RGB", (1600, 1200), (1, 2, 3)).save(file, "PNG")
        self.content, self.kept = file.getvalue(), []

    def __len__(self):
        return 64

    def __getitem__(self, i):
        image = Image.open(io.BytesIO(self.content)).convert("RGB")
        self.kept.append(image.crop((0, 0, 900, 900)).resize((16, 16)))
        return Path("/proc/self/statm").read_text().split()[1]


def test_what_is_kept_of_large_images_takes_little_memory():
    with installed(OFF):
        loader = DataLoader(Album(), batch_size=None, num_workers=1)
        pages = [int(each) for each in loader]
    grown_nbytes = (pages[-1] - pages[8]) * mmap.PAGESIZE
    assert grown_nbytes < 2 * lazy_module.MAX_WAITING_NBYTES  # all of them: 430 MB


@pytest.mark.parametrize("make", SCRIPTS, ids=lambda make: make.__name__)
def test_what_the_script_gets_is_the_same(make, told):
    def make_loader(num_workers):
        return DataLoader(Odd(make), batch_size=8, num_workers=num_workers)

    def run(loader):
        for _epoch in range(2):
            yield from loader

    both(make_loader, run, settings=OFF)
    both(make_loader, run)
    assert not [place for place in told.places() if place.why]
    if make not in NEVER_WAIT:
        assert sum(place.num_made for place in told.places())


def test_a_transform_that_is_replaced_is_called(told):
    """At once; by one worker, for each replaces it at its own moment."""

    def make_loader(num_workers):
        return DataLoader(Odd(forward_replaced), batch_size=8, num_workers=num_workers)

    both(make_loader, lambda loader: loader, settings=OFF, workers=1)


def painted(original):
    """Like a function that returns an image, but with a black corner. A plain function of the script's: no
    closure, which would be left alone anyway."""

    def mine(self, *arguments, _original=original, **named):
        made = _original(self, *arguments, **named)
        made.paste((0, 0, 0), (0, 0, 9, 9))
        return made

    return mine


def scaled(original):
    def mine(image, *arguments, _original=original, **named):
        made = _original(image, *arguments, **named)
        return made * torch.linspace(0, 1, made.shape[-1])

    return mine


def scaled_self(original):
    return lambda self, image, _original=original: _original(self, image) + image.flip(-1)


BEFORE = [
    (Image.Image, "convert", painted),
    (Image.Image, "crop", painted),
    (Image.Image, "resize", painted),
    (Image.Image, "_new", painted),
    (F, "to_tensor", scaled),
    (F, "normalize", scaled),
    (T.Normalize, "forward", scaled_self),
]


@pytest.mark.parametrize(("owner", "name", "change"), BEFORE, ids=[name for _, name, _ in BEFORE])
def test_what_a_script_has_replaced_before_its_loader_began_is_called(owner, name, change):
    """By a function that says that it is the script's."""

    def make_loader(num_workers):
        return DataLoader(Odd(lambda data, i: TRAIN(image_of(i))), 8, num_workers=num_workers)

    def run(loader):
        for _epoch in range(3):
            yield from loader

    with mock.patch.object(owner, name, change(getattr(owner, name))):
        both(make_loader, run, settings=OFF)


def trace_of(data, i):
    def fails(image):
        raise KeyError("mine")

    return T.Compose([T.Resize(20), fails, T.ToTensor()])(image_of(i))


def test_a_traceback_shows_nothing_of_stoker():
    def make_loader(num_workers):
        return DataLoader(Odd(trace_of), batch_size=8, num_workers=num_workers)

    def run(loader):
        with pytest.raises(KeyError) as caught:
            next(iter(loader))
        text = str(caught.value)
        assert "img = t(img)" in text, text
        assert "stoker/images" not in text and "redirect.py" not in text, text
        yield "raised"

    both(make_loader, run, settings=OFF)


def test_files_that_are_refused_prove_nothing(told):
    def make_loader(num_workers):
        return DataLoader(Odd(adobes), batch_size=8, num_workers=num_workers)

    both(make_loader, lambda loader: loader, settings=OFF, workers=1)
    assert sum(place.num_refused for place in told.places())
    for place in told.places():
        assert place.num_checked >= min(report_module.NUM_PROVE, place.num_made - place.num_refused)
