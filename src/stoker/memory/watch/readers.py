"""Tells of files that compiled code opens, which no audit hook hears of: the libraries that do so.

The calls of their functions are redirected, in a worker, which is ours: those of Python's by whatever
name they are called. A file that is read past these is found by the number of bytes that the process
has read (files.py), and then the samples are left alone; of what is mapped there are no such numbers.
Source: soundfile 0.14, torchvision 0.28, torchcodec 0.17, PyAV 18, OpenCV 5, rasterio 1.5, h5py 3.16, Pillow 13,
torch 2.13.
"""

import functools
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from stoker.memory.watch.asked import Asked
from stoker.memory.watch.files import Opened
from stoker.redirect import redirect
from stoker.stack import passed_over


class _Reader(NamedTuple):
    """A function, by module and dotted name, and the name and number of its argument that is a path."""

    module: str
    name: str
    argument: str
    number: int
    looks_beside: bool = False  # for files of other names in the same folder
    remembers: bool = False  # what it has read, and is not asked when
    is_open: bool = False  # the argument is no path, but of an open file of HDF5


_READERS = (
    _Reader("soundfile", "SoundFile._open", "file", 1),
    _Reader("torchvision.io.image", "read_file", "path", 0),  # maps it
    _Reader("torchcodec.decoders._decoder_utils", "create_decoder", "source", 0),
    _Reader("av", "open", "file", 0),
    _Reader("cv2", "imread", "filename", 0),
    _Reader("rasterio", "open", "fp", 0, looks_beside=True),
    _Reader("PIL.ImageFont", "FreeTypeFont.__init__", "font", 1),  # maps it
    _Reader("torch", "from_file", "filename", 0),  # maps it
    _Reader("torch", "UntypedStorage.from_file", "filename", 0),  # maps it
    _Reader("h5py._hl.files", "File.__init__", "name", 1),
    _Reader("h5py._hl.group", "Group.__getitem__", "self", 0, is_open=True),
    _Reader("h5py._hl.dataset", "Dataset.__getitem__", "self", 0, is_open=True),
    _Reader("linecache", "getlines", "filename", 0, remembers=True),
)
_heard: set[_Reader] = set()
_told: list[tuple["weakref.ref[Opened]", Asked]] = []  # the latest counts


def tell_of_readers(opened: Opened, asked: Asked) -> None:
    """Have `opened` told of each path that such a library opens, and `asked` where it looks for more
    beside it. To be called again when further libraries may have been imported."""
    _told[:] = [(weakref.ref(opened), asked)]
    for reader in _READERS:
        if reader not in _heard and reader.module in sys.modules:
            _heard.add(reader)
            owner: Any = sys.modules[reader.module]
            *path, name = reader.name.split(".")
            for each in path:
                owner = getattr(owner, each, None)
            redirect(owner, name, functools.partial(_read, reader))


@passed_over
def _read(
    reader: _Reader, original: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    given = named.get(reader.argument)
    if given is None and len(arguments) > reader.number:
        given = arguments[reader.number]
    opened, asked = _told[0][0](), _told[0][1]
    if opened is not None and reader.is_open:
        _note_open(given, opened, asked)
    if opened is not None and isinstance(given, (str, bytes, os.PathLike)):
        opened.note(given)
    value = original(*arguments, **named)
    if opened is not None and reader.is_open and hasattr(value, "file"):
        _note_open(value, opened, asked)  # which a link may lead to
    if opened is not None and reader.looks_beside and asked.is_noting:
        _note_beside(value, opened, asked)
    if reader.remembers:
        asked.note_unknown()
    return value


def _note_open(given: Any, opened: Opened, asked: Asked) -> None:
    """Note a file of HDF5 that is read through what was opened before; not one whose elements lie in others."""
    try:
        opened.note_open(given.file.filename, given.file.id.get_vfd_handle())
        if getattr(given, "is_virtual", False) or getattr(given, "external", None):
            asked.note_unknown()
    except Exception:  # the library's own
        asked.note_unknown()


def _note_beside(dataset: Any, opened: Opened, asked: Asked) -> None:
    """Note what rasterio's dataset is of: its files, and that others may come beside each."""
    try:
        for each in dataset.files:
            opened.note(each)
            asked.note_folder(each)
    except Exception:  # the library's own, or it is no dataset
        asked.note_unknown()
