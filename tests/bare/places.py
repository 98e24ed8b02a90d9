"""Environments that hold a wheel of stoker and little else, and runs in them."""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOZEN = Path(__file__).with_name("dozen.py")
PATIENCE_S = 900.0
CONSTRAINTS = ROOT / "scripts" / "constraints.txt"


def output(*command: object, cwd: Path | None = None, **environ: str) -> str:
    """What a command prints; it must succeed. stdout and stderr are shown where it does not."""
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=surroundings(environ), timeout=PATIENCE_S,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}:\n{done.stdout}"
    return done.stdout


def surroundings(more: dict[str, str]) -> dict[str, str]:
    """A user's: nothing of this checkout's environment, and one thread."""
    ours = ("PYTHON", "VIRTUAL_ENV", "STOKER_", "PYTEST_")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    return kept | {"OMP_NUM_THREADS": "1"} | more


def unpacked_source(folder: Path) -> Path:
    """The files that a release's tarball holds, in a folder that git knows nothing of."""
    source = folder / "stoker"
    for name in ("src", "scripts", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
        if (ROOT / name).is_dir():
            built = shutil.ignore_patterns("__pycache__", "*.so", "*.so.new")
            shutil.copytree(ROOT / name, source / name, ignore=built)
        else:
            shutil.copy(ROOT / name, source / name)
    return source


def wheel_of(source: Path, folder: Path, **environ: str) -> Path:
    """The wheel that pip builds from a folder or a tarball, with the build tools that are here."""
    words = ("wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder)
    output(sys.executable, "-m", "pip", *words, source, **environ)
    (wheel,) = folder.glob("*.whl")
    return wheel


def without_compiler(folder: Path) -> dict[str, str]:
    """Surroundings in which nobody finds a C compiler."""
    tools = folder / "tools"
    tools.mkdir()
    for name in (
        "sh",
        "bash",
        "env",
        "git",
        "cat",
        "sed",
        "grep",
        "sha256sum",
        "uname",
        "dirname",
        "id",
        "rm",
    ):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    return {"PATH": str(tools), "CC": ""}


@dataclass
class Run:
    code: int
    stdout: str
    stderr: str
    report: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Bare:
    """A virtual environment."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.folder / "lib" / version / "site-packages"

    def install(self, *words: object) -> None:
        """As a user does it: pip into this environment."""
        flags = ("-q", "--disable-pip-version-check", "-c", CONSTRAINTS)
        output(sys.executable, "-m", "pip", "--python", self.python, "install", *flags, *words)

    def run(self, cwd: Path, *command: object, **environ: str) -> Run:
        """Its python with these words, in a folder of its own."""
        cwd.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [str(self.python), *map(str, command)], cwd=cwd, env=surroundings(environ),
            capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
        report = cwd / "report.json"
        told = json.loads(report.read_text()) if report.exists() else {}
        return Run(done.returncode, done.stdout, done.stderr, told)

    def under_stoker(self, cwd: Path, *words: object, flags: tuple[str, ...] = ()) -> Run:
        ours = ("-m", "stoker", "run", "--report-json", "report.json", *flags, "--", self.python)
        return self.run(cwd, *ours, *words)


def made(folder: Path, beneath: Path | None = None) -> Bare:
    """A new one, without pip; it also sees the packages of `beneath`, a site-packages."""
    bare = Bare(folder)
    output(sys.executable, "-m", "venv", "--without-pip", folder)
    if beneath is not None:
        (bare.site / "beneath.pth").write_text(f"{beneath}\n")
    return bare


def with_linked_torch(folder: Path) -> Bare:
    """One that has this environment's torch and what torch asks for, by links: quick and small."""
    bare = made(folder)
    for name in closure("torch"):
        for file in distribution(name).files or ():
            top = file.parts[0]
            if top in ("..", "__pycache__") or (bare.site / top).exists():
                continue
            (bare.site / top).symlink_to(distribution(name).locate_file(top))
    return bare


def closure(name: str) -> set[str]:
    """A distribution and all that it needs of what is installed, extras left out."""
    found: set[str] = set()
    todo = [name]
    while todo:
        each = todo.pop()
        try:
            needs = distribution(each).requires or []
        except PackageNotFoundError:  # of another platform
            continue
        if each not in found:
            found.add(each)
            todo += [re.split(r"[^\w.-]", need)[0] for need in needs if "extra ==" not in need]
    return found
