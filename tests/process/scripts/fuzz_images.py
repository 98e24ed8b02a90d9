"""Feeds damaged JPEG files and odd resamplings to the compiled code, and compares with Pillow.

    python fuzz_images.py LIBRARY SECONDS [SEED]

Promise: ends with 0 if whatever was called sound was decoded by Pillow without an error, and whatever was made
has Pillow's pixels; prints what was tried as one JSON line. Run it under a library that is built with
sanitizers, too.
"""

import ctypes
import io
import json
import random
import sys
import time

import numpy as np
from PIL import Image

from stoker.fast.report import FastWish
from stoker.images.make import Maker
from stoker.images.native import (
    AS_BYTES,
    AS_FLOATS,
    AS_FLOATS_LAST,
    BY_DIVISION,
    BY_PRODUCT,
    BY_TABLE,
    Native,
    Tail,
)
from stoker.images.pillow import Pillow, pillow
from stoker.images.recipe import whole
from stoker.images.sources import Held, Jpeg

NORMALS = [((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), ((0.5,) * 3, (0.5,) * 3)]
FILTERS = [Image.BOX, Image.BILINEAR, Image.BICUBIC, Image.LANCZOS]


def image_of(draw: random.Random) -> Image.Image:
    width, height = (draw.choice([1, 3, 8, 17, 40, 64, 131, 300]) for _ in "wh")
    pixels = np.random.default_rng(draw.getrandbits(32)).integers(0, 256, (height, width, 3))
    image = Image.fromarray(pixels.astype(np.uint8))
    return image.resize((width, height)) if draw.random() < 0.3 else image


def file_of(draw: random.Random) -> bytes:
    options = {"quality": draw.choice([10, 50, 75, 95]), "subsampling": draw.randrange(3)}
    if draw.random() < 0.3:
        options["restart_marker_rows"] = draw.randint(1, 3)
    if draw.random() < 0.1:
        options["progressive"] = True
    file = io.BytesIO()
    try:
        image_of(draw).save(file, "JPEG", **options)
    except OSError:  # Pillow's encoder has too little room for some
        return file_of(draw)
    return file.getvalue()


def damaged(file: bytes, draw: random.Random) -> bytes:
    data = bytearray(file)
    headers = data.find(b"\xff\xda") + 14
    for _ in range(draw.choice([0, 1, 1, 2, 5, 30])):
        at = draw.randrange(min(len(data), headers) if draw.random() < 0.5 else len(data))
        match draw.randrange(5):
            case 0:
                data[at] ^= 1 << draw.randrange(8)
            case 1:
                data[at] = draw.choice([0, 0xFF, 0xD0, 0xD9, draw.randrange(256)])
            case 2:
                del data[at : at + draw.randint(1, 40)]
            case 3:
                data[at:at] = draw.randbytes(draw.randint(1, 40))
            case 4:
                data[at:at] = data[at : at + draw.randint(1, 200)]
        if len(data) < 4:
            break
    return bytes(data)


class Fuzzer:
    def __init__(self, native: Native, known: Pillow) -> None:
        self.native, self.pillow = native, known
        self.counts = dict.fromkeys(
            ("files", "sound", "decoded", "refused", "resampled", "tensors"), 0
        )

    def try_file(self, draw: random.Random) -> None:
        file = damaged(file_of(draw), draw)
        self.counts["files"] += 1
        shape = self.native.shape_of(file)
        if shape is None:
            return
        self.counts["sound"] += 1
        try:
            original = Image.open(io.BytesIO(file))
        except Image.DecompressionBombError:  # so nobody has an image that could wait
            return
        size = original.size
        assert size == (shape.width, shape.height)
        original.load()  # raises what it raises: it is sound, so nothing
        if original.mode != "RGB" or shape.num_components != 3:
            return
        source = Jpeg(file, shape, ("RGB", ""), 65536)
        width, height = draw.randint(1, size[0]), draw.randint(1, size[1])
        left, top = draw.randint(0, size[0] - width), draw.randint(0, size[1] - height)
        maker = Maker(self.native, self.pillow, FastWish(False, {"": ""}))
        recipe = whole(source, size).cropped(left, top, width, height)
        image = original.crop((left, top, left + width, top + height))
        if draw.random() < 0.5:
            to, of = (draw.randint(1, 150), draw.randint(1, 150)), draw.choice(FILTERS)
            width, height = draw.randint(1, to[0]), draw.randint(1, to[1])
            x, y = draw.randint(0, to[0] - width), draw.randint(0, to[1] - height)
            recipe = recipe.resized(*to, of).cropped(x, y, width, height)
            image = image.resize(to, of).crop((x, y, x + width, y + height))
        core = maker._fast_core(recipe)
        self.counts["refused" if core is None else "decoded"] += 1
        if core is not None:
            made = Image.new("RGB", (1, 1))._new(core)
            assert made.tobytes() == image.tobytes(), "other pixels"

    def try_resampling(self, draw: random.Random) -> None:
        image = image_of(draw)
        size, of = (draw.randint(1, 150), draw.randint(1, 150)), draw.choice(FILTERS)
        recipe = whole(Held(image.im), image.size)
        width, height = draw.randint(1, image.width), draw.randint(1, image.height)
        left, top = draw.randint(0, image.width - width), draw.randint(0, image.height - height)
        resized = recipe.cropped(left, top, width, height).resized(*size, of)
        maker = Maker(self.native, self.pillow, FastWish(False, {}))
        want_width, want_height = draw.randint(1, size[0]), draw.randint(1, size[1])
        x, y = draw.randint(0, size[0] - want_width), draw.randint(0, size[1] - want_height)
        recipe = resized.cropped(x, y, want_width, want_height)
        core = maker._fast_core(recipe) if recipe.filter != -1 else maker.original(recipe)
        expected = maker.original(recipe)
        blank = Image.new("RGB", (1, 1))
        assert blank._new(core).tobytes() == blank._new(expected).tobytes(), recipe
        self.counts["resampled"] += 1

    def try_tensor(self, draw: random.Random) -> None:
        image = image_of(draw)
        recipe = whole(Held(image.im), image.size)
        if draw.random() < 0.5:
            size = draw.randint(1, 150), draw.randint(1, 150)
            recipe = recipe.resized(*size, draw.choice(FILTERS))
        recipe = recipe.mirrored() if draw.random() < 0.5 else recipe
        recipe = recipe.flipped() if draw.random() < 0.5 else recipe
        maker = Maker(self.native, self.pillow, FastWish(False, {}))
        expected = np.asarray(Image.new("RGB", (1, 1))._new(maker.original(recipe)))
        mean, std = draw.choice(NORMALS)
        computes = draw.choice((BY_TABLE, BY_DIVISION, BY_PRODUCT))
        values = np.arange(256, dtype=np.float32)[:, None]
        values = (
            values * np.float32(1 / 255) if computes == BY_PRODUCT else values / np.float32(255)
        )
        table = np.ascontiguousarray(((values - np.float32(mean)) / np.float32(std)).T)
        tail = Tail(table.ctypes.data, computes, mean, std)
        floats = np.stack([table[c][expected[..., c]] for c in range(3)])
        wanted = {AS_BYTES: expected, AS_FLOATS: floats, AS_FLOATS_LAST: floats.transpose(1, 2, 0)}
        for kind, values in wanted.items():
            made = np.zeros(values.shape, values.dtype)
            down_first = self.pillow.is_vertical_first(recipe.box[2:], recipe.to_size)
            of = recipe.source.given(self.native, self.pillow)
            told = None if kind == AS_BYTES else tail
            assert self.native.make(recipe, of, kind, made.ctypes.data, told, down_first), recipe
            assert made.tobytes() == values.tobytes(), (recipe, kind, tail)
        self.counts["tensors"] += 1


def main() -> None:
    library, seconds, seed = sys.argv[1], float(sys.argv[2]), int((sys.argv[3:] or ["0"])[0])
    known = pillow()
    assert isinstance(known, Pillow), known
    fuzzer = Fuzzer(Native(ctypes.CDLL(library)), known)
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        seed += 1
        try:
            fuzzer.try_file(random.Random(seed))
            fuzzer.try_resampling(random.Random(seed))
            fuzzer.try_tensor(random.Random(seed))
        except Exception as error:
            raise RuntimeError(f"seed {seed}") from error
    print(json.dumps({**fuzzer.counts, "last_seed": seed}))


if __name__ == "__main__":
    main()
