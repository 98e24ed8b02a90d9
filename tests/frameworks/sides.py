"""One script of a framework as a real process, twice: left to torch, and under stoker.

Promise: both sides run the same file with the same arguments, each in a folder and with a home of
its own; what they print, how they end and every batch's hash must be equal, and nothing may be
left. Ban: knows no framework.
"""

import contextlib
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests.process.harness import Finished, Running, started

SCRIPTS = Path(__file__).parent / "scripts"
# More than the scripts' two workers, on any machine: what draws nothing may spread beyond them.
NUM_SLOTS = 4
# One thread a process: two sides share the machine, and a sum's order does not depend on it.
ENVIRON = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "YOLO_OFFLINE": "true",
    "PYTHONWARNINGS": "default",  # a warning that only one side gives shall show
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One row of docs/compatibility.md: a script, and what of the framework it goes through."""

    framework: str
    what: str
    script: str
    arguments: tuple[str, ...] = ()
    needs: tuple[str, ...]  # distributions; the first one's version is shown
    launcher: tuple[str, ...] = ()  # after the Python

    def __str__(self) -> str:  # the test's name
        ranks = ("two ranks",) if "--multi_gpu" in self.launcher else ()
        return "-".join((self.script, *self.arguments, *ranks))

    def version(self) -> str:
        return metadata.version(self.needs[0]).partition("+")[0]

    def command(self) -> list[str]:
        return [sys.executable, *self.launcher, str(SCRIPTS / self.script), *self.arguments]


@dataclass(frozen=True, slots=True)
class Side:
    """What one side's process left behind when it had ended."""

    end: Finished
    loaders: list[dict[str, Any]]  # of all its processes' reports

    def digests(self) -> list[list[str]]:
        return [loader["batches_sha256"] for loader in self.loaders]

    def stdout(self) -> str:
        return self.end.stdout.replace(str(self.end.folder), "FOLDER")

    def stderr_lines(self) -> set[str]:
        """Without what differs between any two runs: folders, numbers, addresses.

        Not counted: a worker warns once a process, and those of a template share what was said.
        """
        text = self.end.stderr.replace(str(self.end.folder), "FOLDER")
        return {without_numbers(line.strip()) for line in re.split(r"[\r\n]+", text)}

    def files(self) -> set[str]:
        """What it left in its home and temporary folders, which frameworks do."""
        folder = str(self.end.folder).replace("/", "_")  # as some write it into a name
        files = (file.replace(folder, "FOLDER") for file in self.end.left_files())
        return {without_numbers(re.sub(r"(_|tmp)\w{8}\b", "_N", file)) for file in files}


def both_sides(case: Case, folder: Path, *flags: str) -> tuple[Side, Side]:
    """Play the case on torch and under stoker at the same time; assert that nobody can tell.

    flags: further ones of stoker's, for its own side.
    """
    skip_unless_installed(case)
    with (
        running(case, folder / "plain", "--off") as plain_running,
        running(case, folder / "ours", f"--workers={NUM_SLOTS}", *flags) as ours_running,
    ):
        plain, ours = side_of(plain_running), side_of(ours_running)
    assert_alike(plain, ours)
    return plain, ours


def skip_unless_installed(case: Case) -> None:
    for name in case.needs:
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            pytest.skip(f"{name} is not installed; scripts/setup installs it")


@contextlib.contextmanager
def running(case: Case, folder: Path, *flags: str) -> Iterator[Running]:
    (folder / "work").mkdir(parents=True)
    report = f"--report-json={folder / 'report.json'}"
    stoker = [sys.executable, "-m", "stoker", "run", "--quiet", "--hash-batches", report, *flags]
    command = [*stoker, "--", *case.command()]
    with started(command, folder, environ=ENVIRON, cwd=folder / "work") as process:
        yield process


def side_of(process: Running) -> Side:
    end = process.finish()
    ranks = [json.loads(file.read_text())["loaders"] for file in end.folder.glob("report*.json*")]
    # Which of them got which name may depend on who came first.
    ranks.sort(key=lambda loaders: [loader["batches_sha256"] for loader in loaders])
    return Side(end, [loader for loaders in ranks for loader in loaders])


def assert_alike(plain: Side, ours: Side) -> None:
    assert plain.end.returncode == 0, plain.end.stderr
    assert ours.end.returncode == 0, ours.end.stderr
    assert ours.stdout().splitlines() == plain.stdout().splitlines()
    assert "loss " in plain.end.stdout, "no loss was printed: the script tests nothing"
    assert any(plain.digests()), "no loader delivered anything: the script tests nothing"
    assert ours.digests() == plain.digests()
    assert sorted(ours.stderr_lines() - plain.stderr_lines()) == []
    assert (plain.end.leftovers, ours.end.leftovers) == ({}, {})
    assert sorted(ours.files() - plain.files()) == []


def without_numbers(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+|[0-9a-f]{12,}|\d+", "N", text)
