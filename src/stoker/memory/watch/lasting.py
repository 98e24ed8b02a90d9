"""What values depend on beside their dataset, if another run is to find them: machine and libraries."""

import functools
import hashlib
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from stoker.wire.palette import palette

_FORMAT = (
    1  # of values and counts: to be raised when store/coding/ or phases.py changes what they mean
)
# Variables that differ from terminal to terminal and from job to job; a sample that is seen to read
# one is not kept for another run (watch/evidence.py).
_SESSION = {
    "_", "OLDPWD", "SHLVL", "WINDOWID", "STY", "PS1", "PROMPT", "COLUMNS", "LINES", "HOSTNAME",
    # what it decides shows: the order of sets, and hash(), which no sample may call
    "PYTHONHASHSEED",
    "DISPLAY", "INVOCATION_ID", "JOURNAL_STREAM", "COLORTERM", "MASTER_PORT",
}  # fmt: skip
_SESSION_PREFIXES = (
    "SLURM", "SSH_", "XDG_", "DBUS_", "TMUX", "TERM", "VTE_", "PBS_", "LSB_", "STOKER", "JPY_",
    "JOB_", "TORCHELASTIC", "PYTEST_",
)  # fmt: skip
_CPU = ("model name", "flags", "Features", "CPU part")  # lines of /proc/cpuinfo, of x86 and ARM
_CODEC = re.compile(
    r"/lib(av\w+|sw\w+|gdal|sndfile|mpg123|FLAC|vorbis\w*|ogg|opus|mp3lame|soxr|turbojpeg|jpeg|png\w*|tiff|webp\w*"
    r"|openjp2|heif|de265|x26[45]|vpx|dav1d|aom|opencv_\w+|fftw3\w*|mkl\w*|openblas\w*|blas|lapack|z|zstd)[-.][^/]*so"
)
_INSTALLED = (".dist-info", ".egg-info", ".pth")


def is_of_session(variable: str) -> bool:
    """Whether an environment variable is of this terminal or job alone."""
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


def codecs() -> bytes:
    """Return 16 bytes that change with the system's or conda's libraries that decode files or compute, as
    far as this process has loaded them: they are no packages of Python's. Looked for anew when more has
    been imported: a sample that is watched is not to read what it need not."""
    return _codecs(len(sys.modules))


@functools.lru_cache(maxsize=1)
def _codecs(_num_modules: int) -> bytes:
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        lines = []
    # Those in wheels are of their packages.
    lines = [line for line in lines if "-packages/" not in line and _CODEC.search(line)]
    paths = {line.rpartition(" ")[2] for line in lines}
    told = sorted(filter(None, map(_status_of, paths)))
    return hashlib.blake2b(repr(told).encode(), digest_size=16).digest()


def _status_of(path: str) -> tuple[object, ...]:
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
