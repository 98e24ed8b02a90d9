"""What recipes say is what Pillow gives step by step; where they say nothing, Pillow is asked."""

import io
import random

import numpy as np
import pytest
from PIL import Image

from stoker.fast.report import FastWish
from stoker.images.make import Maker
from stoker.images.native import AVX2, AVX512, PLAIN, native
from stoker.images.pillow import Pillow, pillow
from stoker.images.recipe import MAX_SIDE, whole
from stoker.images.sources import Held, Jpeg

FILTERS = [Image.BOX, Image.BILINEAR, Image.BICUBIC, Image.LANCZOS]
SAMPLINGS = ["4:4:4", "4:2:2", "4:2:0"]
ODD_SAMPLINGS = [0x411111, 0x121111]  # four pixels in a row, two in a column
SIZES = [(1, 1), (2, 5), (40, 33), (100, 7), (333, 200), (64, 480)]

needs_library = pytest.mark.skipif(
    native is None or not isinstance(pillow(), Pillow), reason="fast images are off here"
)


def taken(recipe, image, draw):
    """A step that is drawn, for a recipe and for an image of Pillow's."""
    width, height = image.size
    match draw.randrange(4):
        case 0:
            part = draw.randint(1, width), draw.randint(1, height)
            left, top = draw.randint(0, width - part[0]), draw.randint(0, height - part[1])
            box = left, top, left + part[0], top + part[1]
            return recipe.cropped(left, top, *part), image.crop(box)
        case 1:
            size, of = (draw.randint(1, 90), draw.randint(1, 90)), draw.choice(FILTERS)
            return recipe.resized(*size, of), image.resize(size, of)
        case 2:
            return recipe.mirrored(), image.transpose(Image.FLIP_LEFT_RIGHT)
        case _:
            return recipe.flipped(), image.transpose(Image.FLIP_TOP_BOTTOM)


def jpeg_of(image, sampling, quality):
    """A file's bytes. sampling: as Pillow names it; a number: as OpenCV does, which can more."""
    if isinstance(sampling, int):
        cv2 = pytest.importorskip("cv2")
        options = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling, cv2.IMWRITE_JPEG_QUALITY, quality]
        return cv2.imencode(".jpg", np.array(image)[:, :, ::-1], options)[1].tobytes()
    file = io.BytesIO()
    image.save(file, "JPEG", subsampling=sampling, quality=quality)
    return file.getvalue()


def of_pixels(image, draw):
    return Held(image.im.copy()), image


def of_file(image, draw):
    content = jpeg_of(image, draw.choice(SAMPLINGS), draw.choice([40, 90]))
    opened = Image.open(io.BytesIO(content))
    opened.load()
    return Jpeg(content, native.shape_of(content), ("RGB", ""), 65536), opened


@needs_library
@pytest.mark.parametrize("simd", [PLAIN, AVX2, AVX512])
@pytest.mark.parametrize("source_of", [of_pixels, of_file])
def test_any_steps_give_pillows_pixels(monkeypatch, simd, source_of):
    if simd > native.simd:
        pytest.skip("not on this processor")
    monkeypatch.setattr(native, "simd", simd)
    num_said = 0
    for seed in range(300):
        draw = random.Random(seed)
        width, height = draw.choice(SIZES)
        pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
        source, image = source_of(Image.fromarray(pixels), draw)
        maker = Maker(native, pillow(), FastWish(True, {}))
        recipe = whole(source, image.size)
        for _ in range(draw.randint(1, 5)):
            then, image_then = taken(recipe, image, draw)
            if then is None:
                break
            recipe, image = then, image_then
        num_said += recipe.filter != -1
        made = Image.new("RGB", (1, 1))._new(maker.core(recipe))
        assert made.size == image.size
        assert made.tobytes() == image.tobytes(), (seed, recipe)
        assert not any(place.why for place in maker.news()), seed
    assert num_said > 90


@needs_library
@pytest.mark.parametrize("sampling", ODD_SAMPLINGS)
def test_parts_of_files_of_odd_samplings_are_pillows(sampling):
    draw = random.Random(sampling)
    num_made = 0
    for seed in range(150):
        size = draw.randint(1, 150), draw.randint(1, 150)
        pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
        content = jpeg_of(Image.fromarray(pixels), sampling, 80)
        shape = native.shape_of(content)
        opened = Image.open(io.BytesIO(content))
        width, height = draw.randint(1, opened.width), draw.randint(1, opened.height)
        left, top = draw.randint(0, opened.width - width), draw.randint(0, opened.height - height)
        recipe = whole(Jpeg(content, shape, ("RGB", ""), 65536), opened.size)
        recipe = recipe.cropped(left, top, width, height).resized(40, 30, Image.BILINEAR)
        core = Maker(native, pillow(), FastWish(False, {}))._fast_core(recipe)
        num_made += core is not None
        part = opened.crop((left, top, left + width, top + height))
        if core is not None:
            made = Image.new("RGB", (1, 1))._new(core)
            assert made.tobytes() == part.resize((40, 30), Image.BILINEAR).tobytes(), seed
    assert num_made > 100


@needs_library
def test_what_warns_behind_its_last_pixel_is_pillows():
    pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    content = jpeg_of(Image.fromarray(pixels), "4:2:0", 90)
    more = content[:-2] + bytes(8) + content[-2:]
    maker = Maker(native, pillow(), FastWish(False, {}))
    for file, is_made in [(content, True), (more, False)]:
        recipe = whole(Jpeg(file, native.shape_of(file), ("RGB", ""), 65536), (40, 40))
        assert (maker._fast_core(recipe.resized(20, 20, Image.BOX)) is not None) is is_made


@needs_library
def test_a_part_of_a_file_is_made_of_no_more_than_it_needs():
    """Of a file that ends too early the rows that are there are made; where more are needed, none are."""
    pixels = np.random.default_rng(0).integers(0, 256, (480, 64, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90)
    content = file.getvalue()
    cut = content[: 3 * len(content) // 4] + b"\xff\xd9"
    shape = native.shape_of(cut)
    recipe = whole(Jpeg(cut, shape, ("RGB", ""), 65536), (64, 480)).resized(32, 240, Image.BICUBIC)
    recipe = recipe.cropped(0, 20, 32, 100)
    maker = Maker(native, pillow(), FastWish(False, {}))
    opened = Image.open(io.BytesIO(content)).resize((32, 240), Image.BICUBIC)
    made = Image.new("RGB", (1, 1))._new(maker._fast_core(recipe))
    assert made.tobytes() == opened.crop((0, 20, 32, 120)).tobytes()
    assert maker._fast_core(recipe._replace(want=(0, 20, 32, 220))) is None  # it warns


def test_a_part_that_reaches_out_is_not_said():
    recipe = whole(None, (10, 20))
    for box in [(-1, 0, 5, 5), (0, 0, 11, 5), (0, 16, 5, 5), (0, 0, 0, 5), (3, 3, 5, -1)]:
        assert recipe.cropped(*box) is None


def test_what_was_resampled_or_mirrored_is_not_resampled_again():
    recipe = whole(None, (10, 20)).resized(5, 5, Image.BOX)
    assert recipe.resized(4, 4, Image.BOX) is None
    assert recipe.resized(5, 5, Image.LANCZOS) is recipe
    assert whole(None, (10, 20)).mirrored().resized(5, 5, Image.BOX) is None


@pytest.mark.parametrize("size", [(0, 5), (5, -1), (2**32 + 50, 50), (MAX_SIDE, MAX_SIDE)])
def test_sizes_that_pillow_may_refuse_are_pillows(size):
    assert whole(None, (10, 20)).resized(*size, Image.BOX) is None
