"""Tells of files that compiled code opens, which no audit hook hears of: the libraries that do so.

Each is called by a function of Python's, or by its name in a module, and that is wrapped; in a
worker, which is ours. A file that is read past these is found by the number of bytes that the
process has read (files.py), and then the samples are left alone.
Source: soundfile 0.14, torchvision 0.28, torchcodec 0.17, PyAV 18, OpenCV 5, rasterio 1.5.
"""

import functools
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from stoker.memory.watch.asked import Asked

Note = Callable[[object], None]


class _Reader(NamedTuple):
    """A function, by module and dotted name, and the name and number of its argument that is a path."""

    module: str
    name: str
    argument: str
    number: int
    looks_beside: bool = False  # for files of other names in the same folder


_READERS = (
    _Reader("soundfile", "SoundFile._open", "file", 1),
    _Reader("torchvision.io.image", "read_file", "path", 0),
    _Reader("torchcodec.decoders._decoder_utils", "create_decoder", "source", 0),
    _Reader("av", "open", "file", 0),
    _Reader("cv2", "imread", "filename", 0),
    _Reader("rasterio", "open", "fp", 0, looks_beside=True),
)
_wrapped: set[_Reader] = set()
_notes: list[tuple[Note, Asked]] = []  # the latest counts


def tell_of_readers(note: Note, asked: Asked) -> None:
    """Have `note` called with each path that such a library opens, and `asked` told where it looks for
    more beside it. To be called again when further libraries may have been imported."""
    _notes[:] = [(note, asked)]
    for reader in _READERS:
        if reader not in _wrapped and reader.module in sys.modules:
            _wrapped.add(reader)
            _wrap(reader)


def _wrap(reader: _Reader) -> None:
    owner: Any = sys.modules[reader.module]
    *path, name = reader.name.split(".")
    for each in path:
        owner = getattr(owner, each, None)
    original = getattr(owner, name, None)
    if original is None or isinstance(original, type):
        return  # another version; a class that scripts may inherit from stays what it is

    @functools.wraps(original)
    def read(*arguments: Any, **named: Any) -> Any:
        given = named.get(reader.argument)
        if given is None and len(arguments) > reader.number:
            given = arguments[reader.number]
        is_path = isinstance(given, (str, bytes, os.PathLike))
        note, asked = _notes[0]
        if is_path:
            note(given)
        opened = original(*arguments, **named)
        if reader.looks_beside and asked.is_noting:
            _note_beside(opened, note, asked)
        return opened

    setattr(owner, name, read)


def _note_beside(opened: Any, note: Note, asked: Asked) -> None:
    """Note what rasterio's dataset is of: its files, and that others may come beside each."""
    try:
        for each in opened.files:
            note(each)
            asked.note_folder(each)
    except Exception:  # the library's own, or it is no dataset
        asked.note_unknown()
