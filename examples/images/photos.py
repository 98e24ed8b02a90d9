"""Make a folder of JPEG photographs, one class per photograph they are cut from.

Job: thousands of real photographs of mixed sizes for train.py, on a machine without a data set.
Promise: the same files every time (seeded by class and number); a folder is whole or not there.
Ban: no network. Sources are the photographs inside scikit-image's and scikit-learn's wheels; these
  are found by path, since `skimage.data`'s own functions may download.

usage: python examples/images/photos.py FOLDER [--count 2100] [--long-side 320 640]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from PIL import Image

# class name -> (package, file inside it); drawings, scans of text and tiny images left out
SOURCES = {
    "astronaut": ("skimage", "data/astronaut.png"),
    "brick": ("skimage", "data/brick.png"),
    "camera": ("skimage", "data/camera.png"),
    "cat": ("skimage", "data/chelsea.png"),
    "coffee": ("skimage", "data/coffee.png"),
    "flower": ("sklearn", "datasets/images/flower.jpg"),
    "galaxies": ("skimage", "data/hubble_deep_field.jpg"),
    "grass": ("skimage", "data/grass.png"),
    "gravel": ("skimage", "data/gravel.png"),
    "moon": ("skimage", "data/moon.png"),
    "motorcycle": ("skimage", "data/motorcycle_left.png"),
    "retina": ("skimage", "data/retina.jpg"),
    "rocket": ("skimage", "data/rocket.jpg"),
    "temple": ("sklearn", "datasets/images/china.jpg"),
    "tissue": ("skimage", "data/ihc.png"),
}
ASPECTS = (4 / 3, 3 / 2, 1.0, 3 / 4, 2 / 3)  # width / height, as cameras and phones make them
QUALITY = 90


def source_file(class_name: str) -> Path:
    """Path of a class's photograph; raises FileNotFoundError naming the wheel to install."""
    package, inside = SOURCES[class_name]
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        wheel = {"skimage": "scikit-image", "sklearn": "scikit-learn"}[package]
        raise FileNotFoundError(f"{wheel} is not installed; try: pip install {wheel}")
    return Path(spec.submodule_search_locations[0], inside)


def cut(
    photograph: Image.Image, rng: random.Random, long_side_pixels: tuple[int, int]
) -> Image.Image:
    """A random part of a photograph; of its longer side the smallest and largest are given."""
    aspect = rng.choice(ASPECTS)
    long_side = rng.randint(*long_side_pixels)
    width = round(long_side * min(1.0, aspect))
    height = round(long_side / max(1.0, aspect))

    # As large as fits, then down to two thirds of that: a small source is enlarged a little.
    zoom = min(photograph.width / width, photograph.height / height) * rng.uniform(0.67, 1.0)
    crop_width, crop_height = width * zoom, height * zoom
    left = rng.uniform(0, photograph.width - crop_width)
    top = rng.uniform(0, photograph.height - crop_height)
    box = (left, top, left + crop_width, top + crop_height)
    return photograph.resize((width, height), Image.Resampling.BICUBIC, box=box)


def make_class(
    folder: Path, class_name: str, count: int, long_side_pixels: tuple[int, int]
) -> None:
    (folder / class_name).mkdir(parents=True)
    with Image.open(source_file(class_name)) as photograph:
        photograph.load()
        for number in range(count):
            rng = random.Random(f"{class_name}/{number}")
            file = folder / class_name / f"{number:04d}.jpg"
            cut(photograph, rng, long_side_pixels).save(file, quality=QUALITY)


def make_photos(folder: Path, count: int, long_side_pixels: tuple[int, int]) -> None:
    """Fill `folder` with `count` photographs; it must not exist yet."""
    unfinished = folder.with_name(f"{folder.name}.unfinished-{os.getpid()}")
    share, rest = divmod(count, len(SOURCES))
    try:
        with ProcessPoolExecutor() as pool:
            jobs = [
                pool.submit(
                    make_class, unfinished, class_name, share + (number < rest), long_side_pixels
                )
                for number, class_name in enumerate(SOURCES)
            ]
            for job in jobs:
                job.result()
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where to put them; left alone if it exists")
    parser.add_argument("--count", type=int, default=2100, help="photographs in all (default 2100)")
    parser.add_argument(
        "--long-side", type=int, nargs=2, default=(320, 640), metavar=("MIN", "MAX"),
        help="pixels of the longer side (default 320 640)",
    )  # fmt: skip
    args = parser.parse_args()
    if args.count < len(SOURCES):
        parser.error(f"--count must be at least {len(SOURCES)}, one per class; got {args.count}")
    if args.folder.exists():
        print(f"{args.folder} is there already", file=sys.stderr)
        return 0
    args.folder.parent.mkdir(parents=True, exist_ok=True)
    make_photos(args.folder, args.count, tuple(args.long_side))
    print(f"{args.count} photographs in {len(SOURCES)} classes in {args.folder}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
