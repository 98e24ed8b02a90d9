"""Makes works of reading from objects that were opened before: rasterio's datasets, torchcodec's decoders.

What such an object shows depends on the file that it was opened by, on how it was opened, and on the
call. The first two are noted when it is opened.

Promise: an object whose file may have changed since it was opened, that was opened while nobody
noted it, or by what is neither a path nor bytes, gets no work.
Source: rasterio 1.4 (`_io.pyx`, DatasetReaderBase.read); torchcodec 0.17 (decoders/_video_decoder.py,
_audio_decoder.py, _frame.py).
"""

import dataclasses
import functools
import hashlib
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from stoker.clock import wall_ns
from stoker.memory.decoders.arguments import NotPlain, described
from stoker.memory.decoders.values import pack, payload_of, unpack, value_of
from stoker.memory.decoders.work import Work
from stoker.memory.store import NotStorable, is_alone
from stoker.memory.watch import Identity, identities


class Opener(NamedTuple):
    """A function that opens objects, by module and dotted name there; source: the name and number of
    its argument that is a path; is_method: the object is its first argument, and else what it
    returns; files: returns the paths of all files that an object reads."""

    module: str
    name: str
    source: tuple[str, int]
    is_method: bool
    files: Callable[[Any], list[str]]


class _Opening(NamedTuple):
    """told: all that an object depends on but its files."""

    told: object
    files: tuple[Identity, ...]


_openings: "weakref.WeakKeyDictionary[Any, _Opening]" = weakref.WeakKeyDictionary()

OPENERS = (
    Opener("rasterio", "open", ("fp", 0), False, lambda opened: opened.files),
    *(
        Opener(
            f"torchcodec.decoders.{module}", f"{name}.__init__", ("source", 1), True, lambda _: []
        )
        for module, name in (("_video_decoder", "VideoDecoder"), ("_audio_decoder", "AudioDecoder"))
    ),
)
# Methods of torchcodec's decoders that give frames or samples.
CODEC_METHODS = (
    *(
        ("torchcodec.decoders._video_decoder", f"VideoDecoder.{name}")
        for name in (
            "__getitem__", "get_frame_at", "get_frames_at", "get_frames_in_range",
            "get_frame_played_at", "get_frames_played_at", "get_frames_played_in_range",
            "get_all_frames",
        )
    ),
    *(
        ("torchcodec.decoders._audio_decoder", f"AudioDecoder.{name}")
        for name in ("get_all_samples", "get_samples_played_in_range")
    ),
)  # fmt: skip


def note(
    opener: Opener, value: Any, arguments: tuple[Any, ...], named: dict[str, Any], began_ns: int
) -> None:
    """Note by what an object was opened. value: what the opener returned; began_ns: when it was
    called, by the wall clock."""
    name, number = opener.source
    source = arguments[number] if number < len(arguments) else named[name]
    rest = [each for k, each in enumerate(arguments) if k != number and (k or not opener.is_method)]
    paths: list[str] = []
    known_by: object
    if type(source) is bytes:
        known_by = hashlib.blake2b(source, digest_size=16).digest()
    elif isinstance(source, (str, os.PathLike)):
        known_by = os.path.abspath(source)  # noqa: PTH100  # without its file's links, as it was opened
        paths = [known_by]
    else:
        return
    opened = arguments[0] if opener.is_method else value
    paths += [path for path in map(os.path.abspath, opener.files(opened)) if path not in paths]
    files = identities(paths, began_ns)
    try:
        options = {key: named[key] for key in sorted(named) if key != name}
        told = known_by, described([opener.name, rest, options])
    except NotPlain:
        return
    if files is not None:
        _openings[opened] = _Opening(told, files)


def work_of_rasterio(
    original: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> Work | None:
    """Return the work of `DatasetReader.read(dataset, indexes, out, window, ...)`."""
    dataset, *rest = arguments
    library = sys.modules["rasterio.io"]
    if type(dataset) is not vars(library)["DatasetReader"] or dataset.closed:
        return None
    environment = vars(sys.modules["rasterio.env"])
    options = environment["getenv"]() if environment["hasenv"]() else {}
    if named.get("out") is not None or (len(rest) > 1 and rest[1] is not None):
        return None  # it writes there
    given = [_plain_window(each) for each in rest]
    options_given = {key: _plain_window(named[key]) for key in sorted(named)}
    return _work_of(
        functools.partial(original, *arguments, **named),
        dataset,
        [given, options_given, dict(sorted(options.items()))],
        payload_of,
        value_of,
    )


def _plain_window(value: Any) -> Any:
    """Return a rasterio.windows.Window as what `described` knows; all else as it is."""
    window = vars(sys.modules["rasterio.windows"])["Window"]
    if type(value) is not window:
        return value
    return "window", (value.col_off, value.row_off, value.width, value.height)


def work_of_torchcodec(
    name: str, original: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> Work | None:
    """Return the work of a method of one of torchcodec's decoders. name: the method's."""
    decoder, *rest = arguments
    if type(decoder).__module__.partition(".")[0] != "torchcodec":
        return None  # a subclass of the script's
    return _work_of(
        functools.partial(original, *arguments, **named),
        decoder,
        [name, rest, dict(sorted(named.items()))],
        _payload_of_frames,
        _frames_of,
    )


def _work_of(
    make: Callable[[], Any],
    opened: Any,
    told: list[Any],
    payload: Callable[[list[Any]], Any],
    serve: Callable[[Any], Any],
) -> Work | None:
    opening = _openings.get(opened)
    if opening is None:
        return None
    try:
        all_told = opening.told, described(told)
    except NotPlain:
        return None
    files = opening.files
    paths = [each[0] for each in files]

    def identify() -> tuple[Identity, ...] | None:
        """What was opened, if it still lies there."""
        return files if identities(paths, wall_ns()) == files else None

    return Work(all_told, frozenset(paths), identify, make, payload, serve)


def _payload_of_frames(holder: list[Any]) -> Any:
    """Return what to keep of frames: torchcodec's dataclass of tensors and numbers, or a tensor."""
    if not dataclasses.is_dataclass(holder[0]):
        return "", payload_of(holder)
    kind, values = type(holder[0]), vars(holder[0])
    if kind.__module__ != "torchcodec._frame" or set(values) != _fields(kind):
        raise NotStorable("is of a class of its own")
    if not is_alone(holder, 0) or not all(is_alone(values, name) for name in values):
        raise NotStorable("is held elsewhere too")
    return kind.__name__, {name: pack(value) for name, value in values.items()}


def _fields(kind: type) -> set[str]:
    return {each.name for each in dataclasses.fields(kind)}


def _frames_of(payload: Any) -> Any:
    name, kept = payload
    if not name:
        return value_of(kept)
    kind = vars(sys.modules["torchcodec._frame"])[name]
    return kind(**{each: unpack(*value) for each, value in kept.items()})
