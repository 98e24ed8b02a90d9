"""Image files of every kind that people have, by number: each is made of options drawn for that number.

JPEG files of three modes, four samplings, all qualities, with and without restart markers, EXIF turns and
what else stands in front of the pixels, of one pixel and of four million; one in four damaged in one
of eight ways; and one in twelve of another format.
"""

import io
import random
from typing import Any

import numpy as np
from PIL import Image

from stoker.images.native import native
from stoker.images.pillow import Pillow, pillow

try:
    import cv2
except ImportError:  # the default tier has none; the full one has
    cv2 = None

SIDES = (1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 129, 240, 256, 333, 375, 500)  # pixels
HUGE = (2500, 1700)
NUM_HUGE_EVERY = 500
# Whether images are made faster here: by this processor, this Pillow, and a C compiler.
ARE_FAST = native is not None and native.simd and isinstance(pillow(), Pillow)
ODD_SAMPLINGS = (0x411111, 0x121111)  # as OpenCV names them: 4:1:1 and 4:4:0
NUM_BYTES_FLIPPED = 12


def of_pixels(draw: random.Random, number: int) -> Image.Image:
    """An image of smooth colours, with some noise."""
    if number % NUM_HUGE_EVERY == NUM_HUGE_EVERY - 1:
        width, height = HUGE
    else:
        width, height = draw.choice(SIDES), draw.choice(SIDES)
    pixels = np.random.default_rng(number)
    small = pixels.integers(0, 256, (height // 9 + 2, width // 9 + 2, 3), dtype=np.uint8)
    image = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
    if draw.random() < 0.3:
        noise = pixels.integers(0, 256, (height, width, 3), dtype=np.uint8)
        image = Image.blend(image, Image.fromarray(noise), 0.2)
    return image


def exif_of(draw: random.Random) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = draw.randint(0, 9)  # orientation, two of them of no meaning
    return exif.tobytes()


def jpeg_options(draw: random.Random) -> dict[str, Any]:
    options: dict[str, Any] = {"quality": draw.randint(1, 100)}
    if draw.random() < 0.8:
        options["subsampling"] = draw.choice(("4:4:4", "4:2:2", "4:2:0"))
    if draw.random() < 0.15:
        options["progressive"] = True
    elif draw.random() < 0.2:
        options["restart_marker_blocks"] = draw.randint(1, 9)
    if draw.random() < 0.3:
        options["optimize"] = True
    if draw.random() < 0.2:
        options["exif"] = exif_of(draw)
    if draw.random() < 0.1:
        options["comment"] = bytes(draw.randrange(256) for _ in range(draw.randint(1, 300)))
    if draw.random() < 0.1:
        options["dpi"] = (draw.randint(1, 600), 72)
    if draw.random() < 0.05:
        options["icc_profile"] = bytes(draw.randint(1, 70_000))
    return options


def damaged(draw: random.Random, file: bytes) -> bytes:
    """The file, damaged in one of eight ways."""
    half, changed = len(file) // 2, bytearray(file)
    at = draw.randrange(2, len(file))
    match draw.randrange(8):
        case 0:
            return file[:at]
        case 1:
            return file[:-2]  # without its end
        case 2:
            return file[:half] + bytes(len(file) - half)
        case 3:
            return file + bytes(draw.randint(1, 70_000))
        case 4:
            for _ in range(NUM_BYTES_FLIPPED):
                changed[draw.randrange(half, len(file))] ^= 1 << draw.randrange(8)
        case 5:
            changed[at] ^= 1 << draw.randrange(8)  # one bit, of the header too
        case 6:
            changed[at:at] = b"\xff" + bytes([draw.randrange(1, 255)])  # a marker too many
        case 7:
            del changed[at : at + draw.randint(1, 40)]
    return bytes(changed)


def other_file(draw: random.Random, image: Image.Image) -> bytes:
    """A file of another format."""
    name, mode, options = draw.choice(
        [
            ("PNG", "RGB", {}),
            ("PNG", "RGBA", {}),
            ("PNG", "L", {}),
            ("PNG", "P", {}),
            ("PNG", "LA", {}),
            ("GIF", "P", {}),
            ("BMP", "RGB", {}),
            ("TIFF", "RGB", {"compression": "jpeg"}),
            ("WEBP", "RGB", {}),
        ]
    )
    file = io.BytesIO()
    image.convert(mode).save(file, name, **options)
    return file.getvalue()


def of_opencv(image: Image.Image, sampling: int, quality: int) -> bytes:
    options = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling, cv2.IMWRITE_JPEG_QUALITY, quality]
    return cv2.imencode(".jpg", np.array(image)[:, :, ::-1], options)[1].tobytes()


def image_file(number: int) -> bytes:
    """Return the content of a file."""
    draw = random.Random(number)
    image = of_pixels(draw, number)
    if draw.random() < 1 / 12:
        return other_file(draw, image)
    mode = draw.choice(("RGB", "RGB", "RGB", "RGB", "RGB", "L", "CMYK"))
    odd = draw.choice(ODD_SAMPLINGS) if draw.random() < 0.05 and cv2 is not None else 0
    file, options = io.BytesIO(), jpeg_options(draw)
    try:
        image.convert(mode).save(file, "JPEG", **options)
    except OSError:  # Pillow's encoder has too little room for some
        file = io.BytesIO()
        image.convert(mode).save(file, "JPEG", quality=options["quality"])
    content = of_opencv(image, odd, draw.randint(1, 100)) if odd else file.getvalue()
    return damaged(draw, content) if draw.random() < 0.25 else content
