"""Names the functions whose value depends on a file and their arguments alone, and makes works of calls.

Why each is one: it opens the file that it is given by path, decodes it, and returns memory of its own.
What is read of an object that was opened before is not among them, nor is PyAV, whose frames hold what no
function of its sets.

Promise: a call with arguments that are not plain, or with one that is refused, gets no work.
Source: NumPy 2.4, OpenCV 5, soundfile 0.14, torchvision 0.28, torchaudio 2.11, SciPy 1.17,
librosa 0.11.
"""

import functools
import os
from typing import Any, NamedTuple

from stoker.memory.decoders.arguments import NotPlain, described
from stoker.memory.decoders.work import Work, of_path
from stoker.memory.watch import absolute


class Function(NamedTuple):
    """A function, by module and name there; shown: its name as a script writes it; path: the name
    and number of its argument that is a path; refused: names and numbers of arguments that must be
    absent, None or False."""

    module: str
    name: str
    shown: str
    path: tuple[str, int]
    refused: tuple[tuple[str, int], ...] = ()


FUNCTIONS = (
    # Not what is mapped, nor what runs pickled code.
    Function("numpy", "load", "numpy.load", ("file", 0), (("mmap_mode", 1), ("allow_pickle", 2))),
    Function("cv2", "imread", "cv2.imread", ("filename", 0)),
    Function("soundfile", "read", "soundfile.read", ("file", 0), (("out", 7),)),
    Function("torchvision.io.image", "read_image", "torchvision.io.read_image", ("path", 0)),
    Function("torchvision.io.image", "decode_image", "torchvision.io.decode_image", ("input", 0)),
    Function("torchaudio", "load", "torchaudio.load", ("uri", 0)),
    Function("scipy.io.wavfile", "read", "scipy.io.wavfile.read", ("filename", 0), (("mmap", 1),)),
    Function("librosa.core.audio", "load", "librosa.load", ("path", 0)),
)


def work_of(
    function: Function, original: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> Work | None:
    """Return the work of a call; None if it is left alone."""
    given = _given(arguments, named, *function.path)
    if not isinstance(given, (str, os.PathLike)):
        return None
    if any(_given(arguments, named, *each) not in (None, False) for each in function.refused):
        return None
    try:
        told = described(arguments), described(dict(sorted(named.items())))
    except NotPlain:
        return None
    path = absolute(given)  # without its file's links, as it was opened
    return Work(
        told=(path, told),
        paths=frozenset((path,)),
        identify=of_path(path),
        make=functools.partial(original, *arguments, **named),  # no frame of ours
    )


def _given(arguments: tuple[Any, ...], named: dict[str, Any], name: str, number: int) -> Any:
    return arguments[number] if number < len(arguments) else named.get(name)
