"""What values depend on beside their dataset, if another run is to find them: machine and libraries."""

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from stoker.trusted import is_trusted
from stoker.wire.palette import palette

# Of values and counts: to be raised when store/coding/ or phases.py changes what they mean.
_FORMAT = 4
# Variables that differ from terminal to terminal and from job to job; a sample that is seen to read
# one is not kept for another run (watch/evidence.py).
_SESSION = {
    "_", "OLDPWD", "SHLVL", "WINDOWID", "STY", "PS1", "PROMPT", "COLUMNS", "LINES", "HOSTNAME",
    "DISPLAY", "INVOCATION_ID", "JOURNAL_STREAM", "COLORTERM", "MASTER_PORT",
}  # fmt: skip
_SESSION_PREFIXES = (
    "SLURM", "SSH_", "XDG_", "DBUS_", "TMUX", "TERM", "VTE_", "PBS_", "LSB_", "STOKER", "JPY_",
    "JOB_", "TORCHELASTIC", "PYTEST_",
)  # fmt: skip
_CPU = ("model name", "flags", "Features", "CPU part")  # lines of /proc/cpuinfo, of x86 and ARM
_CODEC = re.compile(
    r"/lib(av\w+|sw\w+|gdal|sndfile|mpg123|FLAC|vorbis\w*|ogg|opus|mp3lame|soxr|turbojpeg|jpeg|png\w*|tiff|webp\w*"
    r"|openjp2|heif|de265|x26[45]|vpx|dav1d|aom|opencv_\w+|fftw3\w*|mkl\w*|openblas\w*|blas|lapack|z|zstd"
    r"|m|hdf5\w*|netcdf|proj|openslide|vips|raw|OpenEXR\w*|Imath\w*)[-.][^/]*so"
)
_INSTALLED = (".dist-info", ".egg-info", ".pth")


def is_of_session(variable: object) -> bool:
    """Whether an environment variable, by its text or its bytes, is of this terminal or job alone."""
    variable = os.fsdecode(variable) if isinstance(variable, (str, bytes)) else ""
    return variable in _SESSION or variable.startswith(_SESSION_PREFIXES)


def lasting_of(variables: Mapping[str, str]) -> dict[str, str]:
    """Return those of the variables that another run on this machine has too."""
    return {name: text for name, text in variables.items() if not is_of_session(name)}


@functools.cache
def foundations() -> bytes:
    """Return 16 bytes that change with Python, any installed package, the processor, and stoker.

    Instructions decide the last bit of a sum, and a folder may be on a disk that machines share.
    """
    # Whether elements may be coded, and by which function a checksum is computed.
    is_compiled = palette is not None
    told = [
        _FORMAT,
        is_compiled,
        sys.version,
        platform.machine(),
        *_cpu(),
        torch.__version__,
        *_packages(),
    ]
    return hashlib.blake2b(repr(told).encode(), digest_size=16).digest()


def sources() -> int:
    """Return 63 bits that change with the files of the script and of its own modules: all that are
    loaded and of no installed package."""
    paths = {
        str(path)
        for name, module in tuple(sys.modules.items())
        if not is_trusted(name) and (path := getattr(module, "__file__", None))
    }
    told = hashlib.blake2b(digest_size=8)
    for path in sorted(each for each in paths if "-packages/" not in each):
        with contextlib.suppress(OSError):
            told.update(path.encode(errors="surrogateescape") + Path(path).read_bytes())
    return int.from_bytes(told.digest(), "little") >> 1


def codecs() -> bytes:
    """Return 16 bytes that change with the system's or conda's libraries that decode files or compute, of
    those that are known by name and that this process has loaded: they are no packages of Python's."""
    paths = {os.fsdecode(each) for each in _loaded()}
    # Those in wheels are of their packages.
    paths = {each for each in paths if "-packages/" not in each and _CODEC.search(each)}
    told = sorted(filter(None, map(_file_of, paths)))
    return hashlib.blake2b(repr(told).encode(), digest_size=16).digest()


def _loaded() -> list[bytes]:
    """Return the paths of all shared libraries that are loaded. Reads no file. Source:
    dl_iterate_phdr(3): the second field of what the callback is given is the name."""
    found: list[bytes] = []

    def hear(info: Any, _nbytes: int, _data: object) -> int:
        found.append(info.contents.name or b"")
        return 0

    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Loaded), ctypes.c_size_t, ctypes.c_void_p)
    iterate = getattr(ctypes.CDLL(None), "dl_iterate_phdr", None)
    if iterate is not None:
        iterate(kind(hear), None)
    return found


class _Loaded(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("name", ctypes.c_char_p))


def _file_of(path: str) -> tuple[object, ...]:
    try:
        status = Path(path).stat()
    except OSError:
        return ()
    return path, status.st_size, status.st_mtime_ns


def _cpu() -> Iterator[str]:
    try:
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
    except OSError:
        return
    yield from (line for line in first.splitlines() if line.startswith(_CPU))


def _packages() -> Iterator[object]:
    """Iterate what is installed: names with versions, and when it was."""
    for folder in dict.fromkeys(sys.path):
        try:
            with os.scandir(folder or ".") as found:
                yield sorted(
                    (each.name, each.stat().st_mtime_ns)
                    for each in found
                    if each.name.endswith(_INSTALLED)
                )
        except OSError:
            continue  # no folder: a zip, or nothing
