"""`stoker env`: shows what a bug report needs: versions, machine, limits, settings.

Promise: starts nothing and sends nothing; the values of environment variables that are not
stoker's stay out of it.
"""

import os
import platform
import resource
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import stoker
from stoker import __version__, config, speak
from stoker.cli.flags import parse
from stoker.cli.settings import find
from stoker.errors import ConfigError
from stoker.local import immortal
from stoker.tables import aligned

USAGE = """\
usage: stoker env

Print what a bug report needs: versions, machine, limits, settings that were given. Paste it whole.

exit codes: 0; 2 wrong flags
"""
WRONG_USE = 2
# Libraries that are compiled when stoker is installed, and what is lost without each.
COMPILED = (
    ("copy", "wire/libstream_copy.so", "large batches are copied more slowly"),
    ("palette", "wire/libpalette.so", "remembered images take more memory"),
    ("unchanged", "libunchanged.so", "each epoch starts more slowly, and workers take more memory"),
    ("images", "images/libimages.so", "images are decoded and resized as fast as Pillow does"),
)
PACKAGES = (
    "torch", "torchvision", "torchaudio", "torchdata", "numpy", "pillow", "ray", "numba",
    "cloudpickle", "cryptography", "lightning", "accelerate", "transformers",
)  # fmt: skip
LIMITS = {"open files": "RLIMIT_NOFILE", "processes": "RLIMIT_NPROC", "address space": "RLIMIT_AS"}


def main(words: list[str]) -> int:
    """Print the environment and return the exit code; see USAGE."""
    try:
        flags, rest = parse(words, (), "env")
        if flags is None:
            print(USAGE, end="")
            return 0
        if rest:
            raise ConfigError(f"takes no words: {' '.join(rest)!r}")
    except ConfigError as error:
        speak.say(f"env: {error}")
        return WRONG_USE
    rows = [*_versions(), *_machine(), *_limits(), *_settings()]
    print(aligned([(f"{name}:", value) for name, value in rows]), end="")
    return 0


def _versions() -> Iterator[tuple[str, str]]:
    yield "stoker", f"{__version__}, from {Path(stoker.__file__).parent}"
    yield "armed by", _pth() or "nothing: stoker.pth is in no folder of site packages"
    for name, library, loss in COMPILED:
        is_compiled = (Path(stoker.__file__).parent / library).is_file()
        yield f"compiled {name}", "yes" if is_compiled else f"no: {loss}"
    yield "Python", f"{platform.python_version()}, {sys.executable}"
    for package in PACKAGES:
        yield package, _version(package)
    yield "left to torch", _left_by_version()
    why = immortal.why_not()
    yield "long lists", f"a copy a worker: {why}" if why else "workers share them"


def _left_by_version() -> str:
    """Return what stoker leaves to this torch because it looks different, with what that is for."""
    try:
        from stoker.intercept.eligible import why_not_here
        from stoker.intercept.patches import left_by_version
    except ImportError as error:
        return f"all: {error}"
    left = ", ".join(left_by_version())
    return why_not_here() or left or "nothing because of its version"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _pth() -> str:
    found = [str(Path(folder, "stoker.pth")) for folder in sys.path if folder.endswith("-packages")]
    return next((file for file in found if Path(file).is_file()), "")


def _machine() -> Iterator[tuple[str, str]]:
    from stoker.local.sizing import available_nbytes, machine_nbytes, usable_cores

    yield "system", f"{platform.platform()}, {' '.join(platform.libc_ver())}"
    yield "CPU", f"{_cpu()}, {os.cpu_count()} CPUs, {usable_cores()} for this process"
    yield "memory", f"{machine_nbytes() / 1e9:.1f} GB, {available_nbytes() / 1e9:.1f} GB free"
    shm = os.statvfs("/dev/shm") if Path("/dev/shm").is_dir() else None
    yield "/dev/shm", f"{shm.f_bavail * shm.f_frsize / 1e9:.1f} GB free" if shm else "none"
    yield "GPUs", ", ".join(_gpus()) or "none"
    yield "PID 1", _name_of(1)


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _gpus() -> list[str]:
    """Return the names of NVIDIA GPUs, as the driver shows them without being asked by a program."""
    lines = [
        line
        for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
        for line in file.read_text().splitlines()
    ]
    return [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "unknown"


def _limits() -> Iterator[tuple[str, str]]:
    for name, limit in LIMITS.items():
        soft, _ = resource.getrlimit(getattr(resource, limit))
        yield name, "no limit" if soft == resource.RLIM_INFINITY else f"{soft:,} at most"


def _settings() -> Iterator[tuple[str, str]]:
    try:
        settings, origins, _ = find({})
    except ConfigError as error:
        yield "settings", f"wrong: {error}"
        return
    given = [f"{name}={getattr(settings, name)} ({origin})" for name, origin in origins.items()]
    yield "settings", ", ".join(given) or "none given"
    yield "threads", os.environ.get("OMP_NUM_THREADS", "OMP_NUM_THREADS is not set")
    yield "armed here", "yes" if config.ARMED in os.environ else "no"
