"""A folder of real 500x375 JPEG photographs, one sub-folder a class, as ImageFolder has it.

Promise: cut from the photographs that the scikit-image and scikit-learn wheels ship, always
the same files; made once, then found again. Nothing is downloaded.
"""

import random
from pathlib import Path

from made_data import made_once
from PIL import Image
from wheel_photos import SOURCES, source_path

SIZE_WH = (500, 375)  # the typical ImageNet photograph
NUM_PHOTOS = 1024
LARGE_WH, NUM_LARGE = (1632, 1224), 384
JPEG_QUALITY = 92


def cut_one(photo: Image.Image, draw: random.Random, size_wh: tuple[int, int]) -> Image.Image:
    """A random 4:3 part of a photograph, half of them mirrored, scaled to a size."""
    widest = min(photo.width, photo.height * 4 // 3)
    width = int(widest * draw.uniform(0.7, 1.0))
    height = width * 3 // 4
    left, top = draw.randint(0, photo.width - width), draw.randint(0, photo.height - height)
    part = photo.resize(size_wh, Image.Resampling.LANCZOS, (left, top, left + width, top + height))
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if draw.random() < 0.5 else part


def write_photos(folder: Path, size_wh: tuple[int, int] = SIZE_WH, num: int = 1024) -> None:
    draw = random.Random(0)
    photos = {}
    for label, place in SOURCES.items():
        photos[label] = Image.open(source_path(*place)).convert("RGB")
        (folder / label).mkdir(parents=True)
    for k in range(num):
        label = sorted(SOURCES)[k % len(SOURCES)]
        path = folder / label / f"{k:05d}.jpg"
        cut_one(photos[label], draw, size_wh).save(path, quality=JPEG_QUALITY)


def photo_folder() -> Path:
    name = f"photos-{SIZE_WH[0]}x{SIZE_WH[1]}-q{JPEG_QUALITY}-{NUM_PHOTOS}"
    return made_once(name, write_photos)


def large_photo_folder() -> Path:
    """Photographs of 2 megapixels, as phones make them."""
    width, height = LARGE_WH
    name = f"photos-{width}x{height}-q{JPEG_QUALITY}-{NUM_LARGE}"
    return made_once(name, lambda folder: write_photos(folder, LARGE_WH, NUM_LARGE))


if __name__ == "__main__":
    print(photo_folder())
