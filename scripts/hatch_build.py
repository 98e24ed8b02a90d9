"""Compile the C files of src/stoker while pip installs or builds stoker.

Promise: with a C compiler the libraries lie next to the files that load them, and a wheel carries
  them; without one, or on another system than Linux, stoker is built without them, says so in one
  line each and works the same, if more slowly.
Ban: nothing is linked, neither of Python nor of the C library, so one build serves all versions of
  both: that is what the wheel's tag says (tests/bare asks auditwheel).
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Library(NamedTuple):
    """A library that is compiled. path: where it comes to lie; sources: its files, or a pattern; loss:
    what is slower without it; machines: what it is for, if not for any Linux."""

    path: Path
    sources: str
    loss: str
    machines: tuple[str, ...] = ()


ROOM = Path("src", "stoker")
LIBRARIES = (
    Library(
        ROOM / "wire" / "libstream_copy.so",
        "wire/stream_copy.c",
        "large batches will be copied more slowly",
        machines=("x86_64",),
    ),
    Library(
        ROOM / "wire" / "libpalette.so",
        "wire/palette.c",
        "remembered samples will take more memory",
    ),
    Library(
        ROOM / "libunchanged.so",
        "*.c",
        "each epoch will start more slowly, and workers take more memory",
    ),
    Library(
        ROOM / "images" / "libimages.so",
        "images/native/*.c",
        "images will be decoded and resized as fast as Pillow does",
        machines=("x86_64", "aarch64"),
    ),
)
# Sums and products as they are written: one that is rounded once, where a library rounds twice, is another.
FLAGS = ("-O2", "-fPIC", "-ffp-contract=off", "-shared", "-nostdlib", "-s")
HERE = sysconfig.get_platform().replace("-", "_")
MACHINE = HERE.removeprefix("linux_")
TAG = f"manylinux_2_17_{MACHINE}.manylinux2014_{MACHINE}"  # two names of the oldest that is still in use
HAS_TAG = MACHINE in ("x86_64", "aarch64") and platform.libc_ver()[0] == "glibc"


class CompileHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """version: "standard" for a wheel, "editable" for `pip install -e`."""
        for library in LIBRARIES:
            reason = why_not_built(Path(self.root), library)
            if reason:
                print(f"stoker: {library.loss}: {reason}", file=sys.stderr)
            elif version == "standard":  # an editable one finds the library where it lies
                build_data["artifacts"].append(library.path.as_posix())  # though git ignores it
                build_data["pure_python"] = False
                build_data["tag"] = f"py3-none-{TAG if HAS_TAG else HERE}"


def why_not_built(root: Path, library: Library) -> str:
    """Compile; empty if there is a library now, else the reason why there is none."""
    made, new = root / library.path, root / f"{library.path}.new"
    made.unlink(missing_ok=True)  # an older one may be of another source
    if not HERE.startswith("linux"):
        return f"it is for Linux, this is {sysconfig.get_platform()}"
    if library.machines and MACHINE not in library.machines:
        return f"it is for {' and '.join(library.machines)}, this is {MACHINE}"
    compiler = shlex.split(os.environ.get("CC", "")) or [shutil.which("cc") or "gcc"]
    sources = sorted(map(str, (root / ROOM).glob(library.sources)))
    try:
        command = [*compiler, *FLAGS, "-o", str(new), *sources]
        subprocess.run(command, check=True, capture_output=True, text=True)
    except OSError as error:
        return f"no C compiler ({error}); install gcc and install stoker again"
    except subprocess.CalledProcessError as error:
        what = next((line for line in error.stderr.splitlines() if "error" in line), error.stderr)
        return f"{shlex.join(compiler)} failed: {what.strip()}"
    new.replace(made)  # at once: a worker may be loading it
    return ""
