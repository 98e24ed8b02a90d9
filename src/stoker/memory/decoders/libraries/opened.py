"""Makes works of reading from objects that were opened before: rasterio's datasets, torchcodec's decoders,
laspy's readers.

What such an object shows depends on the file that it was opened by, on how it was opened, and on the
call. The first two are noted when it is opened.

Promise: an object whose file may have changed since it was opened, that was opened while nobody
noted it, that is of a class of the script's, or that shares what another one has opened gets no work.
Source: rasterio 1.4 (`_io.pyx`, DatasetReaderBase.read); torchcodec 0.17 (decoders/_video_decoder.py,
_audio_decoder.py, _frame.py); laspy 2.7 (lasreader.py, point/record.py `from_buffer`).
"""

import dataclasses
import functools
import hashlib
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from stoker.clock import wall_ns
from stoker.memory.decoders.arguments import NotPlain, described
from stoker.memory.decoders.work import Work, is_plain_file, payload_of
from stoker.memory.store import NotStorable, is_alone
from stoker.memory.watch import Identity, absolute, identities, identity_of, is_settled

# Whose datasets read the files that they name, and no others.
_DRIVERS = {"GTiff", "COG", "PNG", "JPEG", "JP2OpenJPEG"}
_MAX_FILES = (
    16  # of one dataset: a tile has one, and a few beside it; each is looked at before each hit
)


class Opener(NamedTuple):
    """A function that opens objects, by module and dotted name there. source: the name and number of
    its argument that is a path; kind: module and name of the objects' class; is_method: the object is
    its first argument, and else what it returns."""

    module: str
    name: str
    source: tuple[str, int]
    kind: tuple[str, str]
    is_method: bool


class _Opening:
    """What an object was opened by. content: given in place of a file; told: all else that it
    depends on."""

    def __init__(self, content: bytes, files: tuple[Identity, ...], told: object) -> None:
        self._content, self.files, self._told = content, files, told

    @functools.cached_property
    def told(self) -> object:
        """All that the object depends on, by what `repr` tells apart."""
        digest = hashlib.blake2b(self._content, digest_size=16).digest()
        self._content = b""
        return digest, [each[0] for each in self.files], self._told


_openings: "weakref.WeakKeyDictionary[Any, _Opening]" = weakref.WeakKeyDictionary()
_RASTERIO, _LASPY = ("rasterio.io", "DatasetReader"), ("laspy.lasreader", "LasReader")
_VIDEO = ("torchcodec.decoders._video_decoder", "VideoDecoder")
_AUDIO = ("torchcodec.decoders._audio_decoder", "AudioDecoder")
OPENERS = (
    Opener("rasterio", "open", ("fp", 0), _RASTERIO, is_method=False),
    *(
        Opener(module, f"{name}.__init__", ("source", 1), (module, name), is_method=True)
        for module, name in (_VIDEO, _AUDIO, _LASPY)
    ),
)
# Methods of torchcodec's decoders that give frames or samples.
CODEC_METHODS = (
    *(
        (_VIDEO[0], f"{_VIDEO[1]}.{name}")
        for name in (
            "__getitem__", "get_frame_at", "get_frames_at", "get_frames_in_range",
            "get_frame_played_at", "get_frames_played_at", "get_frames_played_in_range",
            "get_all_frames",
        )
    ),
    *((_AUDIO[0], f"{_AUDIO[1]}.{name}") for name in ("get_all_samples", "get_samples_played_in_range")),
)  # fmt: skip


def note(
    opener: Opener,
    value: Any,
    arguments: tuple[Any, ...],
    named: dict[str, Any],
    began_ns: int,
    around: object,
) -> None:
    """Note by what an object was opened. value: what the opener returned; began_ns: when it was
    called, by the wall clock; around: what surrounds the call, see decoders.py."""
    opened = arguments[0] if opener.is_method else value
    if not _is_exactly(opened, opener.kind):
        return
    _openings.pop(opened, None)
    name, number = opener.source
    source = arguments[number] if number < len(arguments) else named[name]
    rest = [each for k, each in enumerate(arguments) if k > number]
    options = {key: named[key] for key in sorted(named) if key != name}
    try:
        told = opener.name, around, _gdal_options(), described([rest, options])
    except NotPlain:
        return
    if type(source) is bytes:
        _openings[opened] = _Opening(source, (), told)
        return
    path, descriptor = _path_of(source)
    file = identity_of(path, descriptor) if path else None
    if file is None or not is_settled(file, began_ns):
        return  # elsewhere, or changed just now
    files: tuple[Identity, ...] = (file,)
    if opener.kind == _RASTERIO:
        # Positional options are rarely given; the shared handle may be of what lay there before.
        if opened.driver not in _DRIVERS or len(arguments) > 2 or options.get("sharing"):
            return
        others = set(map(absolute, opened.files)) - {path}
        beside = identities(sorted(others), began_ns)
        if beside is None or len(others) >= _MAX_FILES:
            return
        files = (*files, *beside)
    _openings[opened] = _Opening(b"", files, told)


def _path_of(source: Any) -> tuple[str, int | None]:
    """Return the absolute path, without its file's links, of what an object was opened by, and the
    descriptor if that was an open file; empty if it is no path, and no file that was opened by one."""
    descriptor = None
    if is_plain_file(source):
        source, descriptor = source.name, source.fileno()
    elif not isinstance(source, (str, os.PathLike)):
        return "", None
    return absolute(source), descriptor


def _gdal_options() -> object:
    """Return the options of rasterio's `Env` around the call. Raises NotPlain."""
    environment = sys.modules.get("rasterio.env")
    if environment is None or not vars(environment)["hasenv"]():
        return ()
    return described(dict(sorted(vars(environment)["getenv"]().items())))


def _is_exactly(opened: Any, kind: tuple[str, str]) -> bool:
    module, name = kind
    return type(opened) is vars(sys.modules[module])[name]


def _work_of(make: Callable[[], Any], opened: Any, told: list[Any]) -> Work | None:
    """Return the work of a call. told: all that its value depends on beside what was opened."""
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

    return Work(all_told, frozenset(paths), identify, make)


# -- rasterio ----------------------------------------------------------------------------------------


def work_of_rasterio(
    original: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> Work | None:
    """Return the work of `DatasetReader.read(dataset, indexes, out, window, ...)`."""
    dataset, *rest = arguments
    if not _is_exactly(dataset, _RASTERIO) or dataset.closed:
        return None
    if named.get("out") is not None or (len(rest) > 1 and rest[1] is not None):
        return None  # it writes there
    given = [_plain_window(each) for each in rest]
    options = {key: _plain_window(named[key]) for key in sorted(named)}
    try:
        told = [given, options, repr(_gdal_options())]
    except NotPlain:
        return None
    make = functools.partial(original, *arguments, **named)
    return _work_of(make, dataset, told)


def _plain_window(value: Any) -> Any:
    """Return a rasterio.windows.Window as what `described` knows; all else as it is."""
    if type(value) is not vars(sys.modules["rasterio.windows"])["Window"]:
        return value
    return "window", (value.col_off, value.row_off, value.width, value.height)


# -- torchcodec --------------------------------------------------------------------------------------


def work_of_torchcodec(
    name: str, original: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> Work | None:
    """Return the work of a method of one of torchcodec's decoders. name: the method's."""
    decoder, *rest = arguments
    if not _is_exactly(decoder, _VIDEO if name.startswith(_VIDEO[1]) else _AUDIO):
        return None
    make = functools.partial(original, *arguments, **named)
    told = [name, rest, dict(sorted(named.items()))]
    work = _work_of(make, decoder, told)
    return work and work._replace(payload=_payload_of_frames, serve=_frames_of)


def _payload_of_frames(holder: list[Any]) -> Any:
    """Return what to keep of frames: torchcodec's dataclass of tensors and numbers, or a tensor."""
    if not dataclasses.is_dataclass(holder[0]):
        return "", payload_of(holder)
    kind, values = type(holder[0]), vars(holder[0])
    if kind.__module__ != "torchcodec._frame" or set(values) != _fields(kind):
        raise NotStorable("is of a class of its own")
    if not is_alone(holder, 0) or not all(is_alone(values, name) for name in values):
        raise NotStorable("is held elsewhere too")
    return kind.__name__, dict(values)


def _fields(kind: type) -> set[str]:
    return {each.name for each in dataclasses.fields(kind)}


def _frames_of(payload: Any) -> Any:
    name, values = payload
    return vars(sys.modules["torchcodec._frame"])[name](**values) if name else values


# -- laspy -------------------------------------------------------------------------------------------


def work_of_laspy(original: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Work | None:
    """Return the work of `LasReader.read(reader)`, of one that has read no points before."""
    (reader,) = arguments
    if not _is_exactly(reader, _LASPY) or named or reader.points_read or not reader.closefd:
        return None
    header = reader.header
    num_later = header.number_of_evlrs if header.version.minor >= 4 else 0
    if reader._point_source is not None or (num_later and reader.evlrs is None):
        return None  # it would read those too
    make = functools.partial(original, reader)
    work = _work_of(make, reader, [])
    return work and work._replace(payload=_points_of, serve=functools.partial(_with_points, reader))


def _points_of(holder: list[Any]) -> Any:
    """Return the bytes of the points, as a tensor."""
    points = holder[0].points.array
    base = points.base
    is_bytes = type(base) is memoryview and type(base.obj) is bytearray
    if not is_bytes or base.nbytes != points.nbytes:
        raise NotStorable("is an array that shows another's memory")
    return torch.frombuffer(base, dtype=torch.uint8)


def _with_points(reader: Any, kept: Any) -> Any:
    """Return what `read` does, and leave its reader and header as that would."""
    library, records = sys.modules["laspy.lasreader"], sys.modules["laspy.point.record"]
    header = reader.header
    _ = reader.point_source  # made at the first read: it takes what is LAZ's own out of the header
    packed = vars(records)["PackedPointRecord"].from_buffer(
        bytearray(kept.numpy()), header.point_format
    )
    points = vars(records)["ScaleAwarePointRecord"](
        packed.array, packed.point_format, header.scales, header.offsets
    )
    reader.points_read += header.point_count
    return vars(library)["LasData"](header=header, points=points)
