"""A folder of real 500x375 JPEG photographs, one sub-folder a class, as ImageFolder has it.

Promise: cut from the photographs that the scikit-image and scikit-learn wheels ship, always
the same files; made once, then found again. Nothing is downloaded.
"""

import importlib.util
import os
import random
import shutil
import tempfile
from pathlib import Path

from PIL import Image

SIZE_WH = (500, 375)  # the typical ImageNet photograph
NUM_PHOTOS = 1024
JPEG_QUALITY = 92
SOURCES = {
    "astronaut": ("skimage", "data/astronaut.png"),
    "chelsea": ("skimage", "data/chelsea.png"),
    "china": ("sklearn", "datasets/images/china.jpg"),
    "coffee": ("skimage", "data/coffee.png"),
    "flower": ("sklearn", "datasets/images/flower.jpg"),
    "hubble": ("skimage", "data/hubble_deep_field.jpg"),
    "motorcycle": ("skimage", "data/motorcycle_left.png"),
    "retina": ("skimage", "data/retina.jpg"),
    "rocket": ("skimage", "data/rocket.jpg"),
}


def data_dir() -> Path:
    """Where benchmarks keep made data: BENCH_DATA_DIR, else .data/benchmarks of this checkout."""
    default = Path(__file__).resolve().parent.parent / ".data" / "benchmarks"
    return Path(os.environ.get("BENCH_DATA_DIR", default))


def source_path(package: str, inside: str) -> Path:
    """A photograph inside an installed wheel; the package itself is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"no photographs: {package} is not installed; pip install {package}")
    return Path(spec.submodule_search_locations[0]) / inside


def cut_one(photo: Image.Image, draw: random.Random) -> Image.Image:
    """A random 4:3 part of a photograph, half of them mirrored, scaled to SIZE_WH."""
    widest = min(photo.width, photo.height * 4 // 3)
    width = int(widest * draw.uniform(0.7, 1.0))
    height = width * 3 // 4
    left, top = draw.randint(0, photo.width - width), draw.randint(0, photo.height - height)
    part = photo.resize(SIZE_WH, Image.Resampling.LANCZOS, (left, top, left + width, top + height))
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if draw.random() < 0.5 else part


def write_photos(folder: Path) -> None:
    draw = random.Random(0)
    photos = {}
    for label, place in SOURCES.items():
        photos[label] = Image.open(source_path(*place)).convert("RGB")
        (folder / label).mkdir(parents=True)
    for k in range(NUM_PHOTOS):
        label = sorted(SOURCES)[k % len(SOURCES)]
        path = folder / label / f"{k:05d}.jpg"
        cut_one(photos[label], draw).save(path, quality=JPEG_QUALITY)


def photo_folder() -> Path:
    """The folder, made if it is not there: as a whole or not at all."""
    wanted = data_dir() / f"photos-{SIZE_WH[0]}x{SIZE_WH[1]}-q{JPEG_QUALITY}-{NUM_PHOTOS}"
    if wanted.is_dir():
        return wanted
    wanted.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=wanted.parent, prefix=".making-"))
    write_photos(made)
    try:
        made.rename(wanted)
    except OSError:  # somebody else was quicker: theirs are the same files
        shutil.rmtree(made)
    return wanted


if __name__ == "__main__":
    print(photo_folder())
