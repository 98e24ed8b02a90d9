"""Makes works of Pillow's decoding: an image that was opened gets its pixels from the shelf.

`Image.open` itself always runs, and so do header, size, info, draft and errors: only the decoding in
`load` is done once. What a load has left behind in the image is compared with what is known of it,
and an image of which anything else has changed is not kept.

Promise: after a load from the shelf an image has the attributes, and its file the position, that
they have after a load.
Source: PIL/ImageFile.py `load`, PIL/PngImagePlugin.py `load_end`, Pillow 13.
"""

import ctypes
import functools
import hashlib
import io
import sys
from typing import Any

import torch

from stoker.memory.decoders.arguments import described
from stoker.memory.decoders.work import Identify, Work, is_plain_file, of_bytes, of_open_file
from stoker.memory.store import NotStorable
from stoker.memory.watch import absolute

# Modes, and how their pixels lie in memory.
_RAW = {"L": "L", "RGB": "RGBX", "RGBA": "RGBA", "CMYK": "CMYK", "I;16": "I;16"}
_TILE = {"L": 1, "RGB": 4, "RGBA": 4, "CMYK": 4, "I;16": 2}  # bytes of a pixel
_KINDS = (("PIL.JpegImagePlugin", "JpegImageFile"), ("PIL.PngImagePlugin", "PngImageFile"))
_CHANGED = {"_im", "tile", "fp", "_readonly", "map"}  # by every load
_PNG_POSITION = "_PngImageFile__idat"
_CHANGED_IN_PNG = {"png", "_text", _PNG_POSITION}
_MAX_NBYTES_PER_PIXEL = 2  # of a file in memory, whose bytes are hashed for each load


class _Before(dict[str, Any]):
    """An image's attributes, and copies of those that are changed in place."""

    def __init__(self, image: Any) -> None:
        super().__init__(vars(image))
        self.inside = _inside(image)


def work_of(original: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Work | None:
    """Return the work of `ImageFile.load(image)`; None if it is left alone."""
    image = arguments[0]
    if named or len(arguments) != 1 or not _is_known(image):
        return None
    found = _identified(image)
    if found is None:
        return None
    path, told, identify = found
    before = _Before(image)
    return Work(
        told=(told, _told_of(image)),
        paths=frozenset((path,) if path else ()),
        identify=identify,
        make=functools.partial(original, image),
        payload=lambda holder: _payload_of(image, before),
        serve=lambda payload: _serve(image, payload),
        takes_copy=False,
    )


def _is_known(image: Any) -> bool:
    """Whether an image is of a kind of which it is known what a load does, and not loaded yet."""
    kind = type(image)
    if getattr(image, "_im", image) is not None:
        return False  # loaded, as is most often asked for
    return (
        (kind.__module__, kind.__qualname__) in _KINDS
        and sys.modules[kind.__module__].__dict__.get(kind.__qualname__) is kind
        and "load" not in vars(image)
        and image.fp is not None
        and image.palette is None
        and len(image.tile) == 1
        and image.mode in _RAW
        and not getattr(image, "is_animated", False)
        and not image.info.get("interlace")
    )


def _identified(image: Any) -> tuple[str, object, Identify] | None:
    """Return the path of an image's file, what tells its content, and how to ask for its identity."""
    file = image.fp
    if is_plain_file(file):
        path = absolute(file.name)  # without links, as it was opened
        return path, path, of_open_file(path, file)
    if type(file) is not io.BytesIO:
        return None
    width, height = image.size
    with file.getbuffer() as content:
        if content.nbytes > _MAX_NBYTES_PER_PIXEL * width * height + 4096:
            return None
        return "", hashlib.blake2b(content, digest_size=16).digest(), of_bytes


def _told_of(image: Any) -> object:
    """Return all that a load reads but the file. Raises NotPlain."""
    settings = sys.modules["PIL.ImageFile"].__dict__
    codec, extents, offset, arguments = image.tile[0]
    return (
        type(image).__qualname__,
        image.mode,
        image.size,
        described((codec, extents, offset, arguments)),
        described(image.decoderconfig),
        image.decodermaxblock,
        settings["LOAD_TRUNCATED_IMAGES"],
        image.fp.tell(),
        _closes(image),
        vars(image).get("_PngImageFile__prepare_idat"),
    )


def _inside(image: Any) -> object:
    """Return copies of what a load may change in place: text behind a PNG's pixels."""
    png = vars(image).get("png")
    texts = None if png is None else dict(png.im_text)
    return dict(image.info), texts, list(vars(image).get("private_chunks", ()))


def _payload_of(image: Any, before: _Before) -> Any:
    """Return the pixels of an image that was just loaded, and where its file and chunk stand.

    Raises NotStorable if the load has changed more than it is known to.
    """
    after = vars(image)
    png = before.get("png")
    changed = _CHANGED if png is None else _CHANGED | _CHANGED_IN_PNG
    is_as_known = (
        set(after) - changed == set(before) - changed
        and all(after[name] is before[name] for name in set(before) - changed)
        and after["tile"] == []
        and after["fp"] is after["map"] is None
        and after["_readonly"] == 0
    )
    if png is not None and is_as_known:
        is_as_known = after["png"] is None and after["_text"] is png.im_text
    texts = None if png is None else dict(png.im_text)
    inside = dict(image.info), texts, list(after.get("private_chunks", ()))
    if not is_as_known or inside != before.inside:
        raise NotStorable("is an image of which a load changes more than pixels")
    file = before["fp"]
    position = None if file.closed else file.tell()
    if (position is None) is not _closes(image):
        raise NotStorable("is an image whose file is not left as expected")
    pixels = bytearray(image.tobytes("raw", _RAW[image.mode]))
    return position, after.get(_PNG_POSITION), torch.frombuffer(pixels, dtype=torch.uint8)


def _closes(image: Any) -> bool:
    return bool(image._exclusive_fp and image._close_exclusive_fp_after_loading)


def _serve(image: Any, payload: Any) -> Any:
    """Do what `load` does, but for the decoding. payload: its pixels are still the shelf's."""
    position, chunk_position, pixels = payload
    core = sys.modules["PIL.Image"].__dict__["core"]
    if pixels.nbytes != image.size[0] * image.size[1] * _TILE[image.mode]:
        raise ValueError("pixels of another image")
    memory = (ctypes.c_ubyte * pixels.nbytes).from_address(pixels.data_ptr())
    loaded = core.map_buffer(memory, image.size, "raw", 0, (image.mode, 0, 1)).copy()
    image.map = None
    image.im = loaded
    image.tile = []
    image.readonly = 0
    if position is None:
        image.fp.close()
    else:
        image.fp.seek(position)
    image.fp = None
    if chunk_position is not None:
        image._text = image.png.im_text
        image.png.close()
        image.png = None
        setattr(image, _PNG_POSITION, chunk_position)
    return sys.modules["PIL.Image"].__dict__["Image"].load(image)
