"""Compile src/stoker/wire/stream_copy.c while pip installs or builds stoker.

Promise: with a C compiler the library lies next to the file that loads it, and a wheel carries
  it; without one, or on another system than Linux on x86-64, stoker is built without it, says so
  in one line and works the same, if more slowly.
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
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOM = Path("src", "stoker", "wire")
LIBRARY = ROOM / "libstream_copy.so"
HERE = sysconfig.get_platform().replace("-", "_")
TAG = "manylinux_2_17_x86_64.manylinux2014_x86_64"  # two names of the oldest that is still in use


class StreamCopyHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """version: "standard" for a wheel, "editable" for `pip install -e`."""
        reason = why_not_built(Path(self.root))
        if reason:
            print(f"stoker: large batches will be copied more slowly: {reason}", file=sys.stderr)
        elif version == "standard":  # an editable one finds the library where it lies
            build_data["artifacts"].append(LIBRARY.as_posix())  # though git ignores it
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{TAG if platform.libc_ver()[0] == 'glibc' else HERE}"


def why_not_built(root: Path) -> str:
    """Compile; empty if there is a library now, else the reason why there is none."""
    library, new = root / LIBRARY, root / f"{LIBRARY}.new"
    library.unlink(missing_ok=True)  # an older one may be of another stream_copy.c
    if sysconfig.get_platform() != "linux-x86_64":
        return f"streaming stores are for linux-x86_64, this is {sysconfig.get_platform()}"
    compiler = shlex.split(os.environ.get("CC", "")) or [shutil.which("cc") or "gcc"]
    source = root / ROOM / "stream_copy.c"
    command = [*compiler, "-O2", "-fPIC", "-shared", "-nostdlib", "-s", "-o", str(new), str(source)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except OSError as error:
        return f"no C compiler ({error}); install gcc and install stoker again"
    except subprocess.CalledProcessError as error:
        what = next((line for line in error.stderr.splitlines() if "error" in line), error.stderr)
        return f"{shlex.join(compiler)} failed: {what.strip()}"
    new.replace(library)  # at once: a worker may be loading it
    return ""
