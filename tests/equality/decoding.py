"""Datasets that decode files, and cannot be remembered themselves: they draw first, or are iterables.

Each form of reading a file is a function of a path, with the kind of file that it is for. Not a test
module: pytest rewrites those.
"""

import io
import random
import warnings
import wave
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFile, ImageOps
from torch.utils.data import Dataset, IterableDataset, get_worker_info

NUM = 48
SIZE = (320, 240)
WARNING = "a note from a sample"


def pixels(number, channels=3):
    """Pixels that are dear to decode, others for each number."""
    rng = np.random.default_rng(number)
    small = rng.integers(0, 255, (60, 80, channels), dtype=np.uint8)
    bands = [Image.fromarray(small[..., band]).resize(SIZE) for band in range(channels)]
    return Image.merge("RGB", bands) if channels == 3 else bands[0]


def write_jpeg(path, number):
    pixels(number).save(path, "JPEG", quality=95)


def write_turned(path, number):
    exif = Image.Exif()
    exif[0x0112] = 1 + number % 8
    pixels(number).save(path, "JPEG", quality=95, exif=exif)


def write_gray(path, number):
    pixels(number, 1).resize((640, 480)).save(path, "JPEG", quality=95)


def write_cmyk(path, number):
    pixels(number).convert("CMYK").save(path, "JPEG", quality=95)


def write_cut_short(path, number):
    write_jpeg(path, number)
    if number % 3 == 0:
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])


def write_png(path, number):
    pixels(number).save(path, "PNG")


def write_interlaced(path, number):
    pixels(number).convert("RGBA").save(path, "PNG")


def write_palette(path, number):
    pixels(number).quantize(64).save(path, "PNG")


def write_deep(path, number):
    deep = np.asarray(pixels(number, 1)).astype(np.uint16) * 257
    Image.fromarray(deep).save(path, "PNG")


def write_frames(path, number):
    frames = [pixels(number + k, 1) for k in range(2)]
    frames[0].save(path, "GIF", save_all=True, append_images=frames[1:])


def write_array(path, number):
    rng = np.random.default_rng(number)
    with path.open("wb") as file:
        np.save(file, rng.random((40, 30), dtype=np.float32))


def write_sound(path, number):
    rng = np.random.default_rng(number)
    samples = rng.integers(-(1 << 15), 1 << 15, 44100, dtype=np.int16)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(44100)
        file.writeframes(samples.tobytes())


def write_flac(path, number):
    import soundfile

    rng = np.random.default_rng(number)
    noise = rng.integers(-3000, 3000, 44100).astype(np.int16)
    soundfile.write(path, noise, 44100, format="FLAC")


def write_tile(path, number):
    import rasterio

    bands = np.random.default_rng(number).integers(0, 9, (3, 256, 256)).astype(np.uint16)
    with rasterio.open(
        path, "w", driver="GTiff", width=256, height=256, count=3, dtype="uint16",
        transform=rasterio.Affine(10, 0, 500_000, 0, -10, 5_000_000), crs="EPSG:32633", compress="deflate",
    ) as file:  # fmt: skip
        file.write(bands)


# -- forms -------------------------------------------------------------------------------------------


def as_tensor(image):
    return torch.from_numpy(np.array(image))


def pil_loader(path):
    """As torchvision's ImageFolder reads."""
    with open(path, "rb") as file:  # noqa: PTH123
        image = Image.open(file)
        return as_tensor(image.convert("RGB"))


def opened(path):
    return as_tensor(Image.open(path).convert("RGB"))


def turned(path):
    return as_tensor(ImageOps.exif_transpose(Image.open(path)).resize(SIZE))


def as_it_is(path):
    return as_tensor(Image.open(path))


def drafted(path):
    image = Image.open(path)
    image.draft("L", (100, 80))
    return as_tensor(image)


def shrunk(path):
    image = Image.open(path)
    image.thumbnail((64, 64))
    return as_tensor(image)


def from_bytes(path):
    """As samples come from a tar or a table."""
    return as_tensor(Image.open(io.BytesIO(Path(path).read_bytes())).convert("RGB"))


def or_error(path):
    try:
        return opened(path)
    except OSError as error:
        return torch.tensor([ord(letter) for letter in str(error)])


def cut_short(path):
    before, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, random.random() < 0.5
    try:
        return or_error(path)
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = before


def both_frames(path):
    image = Image.open(path)
    first = as_tensor(image)
    image.seek(1)
    return torch.stack([first, as_tensor(image)])


def rest_of_file(path):
    with Path(path).open("rb") as file:
        Image.open(file).load()
        return torch.tensor([file.tell()])


def drawn_on(path):
    image = Image.open(path)
    access = image.load()
    before = access[3, 4]
    access[3, 4] = (1, 2, 3)
    image.putpixel((5, 6), (7, 8, 9))
    return torch.cat([as_tensor(image).flatten(), torch.tensor(before)])


def changed_in_place(path):
    array = np.load(path)
    array += 1
    return torch.from_numpy(array)


def loaded(path):
    array = np.load(path)
    facts = array.base is None, array.flags.owndata, array.flags.writeable, *array.strides
    return torch.from_numpy(array).sum() + torch.tensor([float(fact) for fact in facts])


def by_opencv(path):
    import cv2

    image = cv2.imread(path)
    image[0, 0] = 0
    return torch.from_numpy(image)


def by_opencv_gray(path):
    import cv2

    return torch.from_numpy(cv2.imread(path, cv2.IMREAD_GRAYSCALE))


def by_torchvision(path):
    from torchvision.io import read_image

    return read_image(path)


def by_torchvision_gray(path):
    from torchvision.io import ImageReadMode, decode_image

    return decode_image(path, mode=ImageReadMode.GRAY).add_(1)


def by_scipy(path):
    from scipy.io import wavfile

    rate, samples = wavfile.read(path)
    return torch.from_numpy(samples.astype(np.int32)) + rate


def by_soundfile(path):
    import soundfile

    samples, rate = soundfile.read(path, dtype="float32")
    samples *= 2
    return torch.from_numpy(samples) + rate


def a_part_by_soundfile(path):
    from soundfile import read

    samples, _ = read(path, frames=999, start=7, always_2d=True)
    return torch.from_numpy(samples)


def by_librosa(path):
    import librosa

    samples, rate = librosa.load(path, sr=16000, duration=0.5)
    samples[0] = 7
    return torch.from_numpy(samples) + rate


def by_torchaudio(path):
    import torchaudio

    samples, rate = torchaudio.load(path, num_frames=9999)
    return samples.mul_(2) + rate


def warns(path):
    warnings.warn(WARNING, stacklevel=1)
    return opened(path)


# -- datasets ----------------------------------------------------------------------------------------


class DrawsFirst(Dataset):
    """Cannot be remembered: where each sample begins, it draws."""

    def __init__(self, folder, read):
        self.paths = sorted(map(str, folder.iterdir()))
        self.read = read

    def __len__(self):
        return NUM

    def __getitem__(self, i):
        if random.random() < 2:
            value = self.read(self.paths[i])
        return value


class ThenDraws(DrawsFirst):
    """Can be split behind its file."""

    def __getitem__(self, i):
        value = self.read(self.paths[i])
        return value, random.random()


class Stream(IterableDataset):
    """Each worker reads its shard, in an order of its own."""

    def __init__(self, folder, read):
        self.paths = sorted(map(str, folder.iterdir()))
        self.read = read

    def __iter__(self):
        worker = get_worker_info()
        shard = self.paths[worker.id :: worker.num_workers]
        for path in random.sample(shard, len(shard)):
            yield self.read(path)


class Several(DrawsFirst):
    """Makes its samples at once."""

    def __getitems__(self, indices):
        return [self[index] for index in indices]


PICTURES = "PIL.Image.open"
LIBRARIES = {
    "torchvision.io.read_image": "torchvision.io",
    "torchvision.io.decode_image": "torchvision.io",
    "soundfile.read": "soundfile",
    "librosa.load": "librosa",
    "torchaudio.load": "torchaudio",
    "cv2.imread": "cv2",
}
# The form, its files, and the function that is remembered; "" for what is left alone.
FORMS = [
    (pil_loader, write_jpeg, PICTURES),
    (opened, write_jpeg, PICTURES),
    (opened, write_png, PICTURES),
    (opened, write_cmyk, PICTURES),
    (turned, write_turned, PICTURES),
    (as_it_is, write_gray, PICTURES),
    (as_it_is, write_deep, PICTURES),
    (opened, write_palette, ""),
    (both_frames, write_frames, ""),
    (drafted, write_jpeg, PICTURES),
    (shrunk, write_jpeg, PICTURES),
    (from_bytes, write_jpeg, PICTURES),
    (or_error, write_cut_short, PICTURES),
    (cut_short, write_cut_short, PICTURES),
    (rest_of_file, write_jpeg, PICTURES),
    (drawn_on, write_jpeg, PICTURES),
    (by_opencv, write_jpeg, "cv2.imread"),
    (by_opencv_gray, write_png, "cv2.imread"),
    (by_torchvision, write_jpeg, "torchvision.io.read_image"),
    (by_torchvision_gray, write_png, "torchvision.io.decode_image"),
    (by_scipy, write_sound, ""),
    (by_soundfile, write_flac, "soundfile.read"),
    (a_part_by_soundfile, write_flac, "soundfile.read"),
    (by_librosa, write_flac, "librosa.load"),
    (by_torchaudio, write_sound, "torchaudio.load"),
    (changed_in_place, write_array, ""),
    (loaded, write_array, ""),
]
