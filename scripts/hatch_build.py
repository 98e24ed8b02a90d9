"""Compile the C files of src/stoker/wire while pip installs or builds stoker.

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
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOM = Path("src", "stoker", "wire")
# What is slower without each.
SOURCES = {
    "stream_copy": "large batches will be copied more slowly",
    "palette": "remembered samples will take more memory",
}
X86_ONLY = {"stream_copy"}
HERE = sysconfig.get_platform().replace("-", "_")
TAG = "manylinux_2_17_x86_64.manylinux2014_x86_64"  # two names of the oldest that is still in use
HAS_TAG = HERE == "linux_x86_64" and platform.libc_ver()[0] == "glibc"


class CompileHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """version: "standard" for a wheel, "editable" for `pip install -e`."""
        for name, loss in SOURCES.items():
            reason = why_not_built(Path(self.root), name)
            if reason:
                print(f"stoker: {loss}: {reason}", file=sys.stderr)
            elif version == "standard":  # an editable one finds the library where it lies
                build_data["artifacts"].append(library_of(name).as_posix())  # though git ignores it
                build_data["pure_python"] = False
                build_data["tag"] = f"py3-none-{TAG if HAS_TAG else HERE}"


def library_of(name: str) -> Path:
    return ROOM / f"lib{name}.so"


def why_not_built(root: Path, name: str) -> str:
    """Compile; empty if there is a library now, else the reason why there is none."""
    library, new = root / library_of(name), root / f"{library_of(name)}.new"
    library.unlink(missing_ok=True)  # an older one may be of another source
    if name in X86_ONLY and HERE != "linux_x86_64":
        return f"streaming stores are for linux-x86_64, this is {sysconfig.get_platform()}"
    if not HERE.startswith("linux"):
        return f"it is for Linux, this is {sysconfig.get_platform()}"
    compiler = shlex.split(os.environ.get("CC", "")) or [shutil.which("cc") or "gcc"]
    source = root / ROOM / f"{name}.c"
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
