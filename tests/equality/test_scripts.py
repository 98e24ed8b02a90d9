"""Twenty training scripts of as many genres: every batch, every printed loss, every file is torch's.

Each runs once with every loader left to torch and once under stoker. Equal must be: the digest of
each batch of each loader in order, standard output, the texts of warnings, the exit code, and the
bytes of all that the script saves. What is expected of each loader stands in CORPUS.
"""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.process.harness import Finished, finished, under_stoker

FOLDER = Path(__file__).parents[1] / "scripts"

# What becomes of a loader. All but OURS are a part of the reason why torch keeps it: when stoker
# takes over such loaders, the constant becomes OURS, or single entries of CORPUS do.
OURS = ""
NO_WORKERS = "num_workers=0"
ITERABLE = "the dataset is iterable"
SPAWNED = "workers are started by spawn"


@dataclass(frozen=True, kw_only=True)
class Script:
    """loaders: in the order of their first iteration; ends: the exit code of each run;
    runs: arguments of each run, one after the other in the same folder."""

    loaders: dict[str, str]
    runs: tuple[list[str], ...] = ([],)
    ends: int = 0
    needs: list[str] = field(default_factory=list)


# fmt: off
CORPUS = {
    "imagenet":    Script(loaders={"train": OURS, "val": OURS}, needs=["torchvision"]),
    "cifar":       Script(loaders={"train": OURS, "val": OURS}),
    "voc":         Script(loaders={"train": OURS, "val": OURS}),
    "coco":        Script(loaders={"train": OURS, "val": OURS}),
    "speech":      Script(loaders={"train": OURS, "val": OURS}),
    "lm_tokens":   Script(loaders={"train": OURS, "val": OURS}, runs=([], ["--resume", "--max-iters=24"])),
    "gan":         Script(loaders={"photos": OURS, "sketches": OURS}),
    "contrastive": Script(loaders={"train": OURS}, needs=["torchvision"]),
    "graphs":      Script(loaders={"train": OURS, "val": OURS}),
    "video":       Script(loaders={"train": OURS, "val": OURS}),
    "tabular":     Script(loaders={"train": OURS, "val": NO_WORKERS, "test": SPAWNED}),
    "forecast":    Script(loaders={"train": OURS, "val": NO_WORKERS}, ends=3),
    "pointcloud":  Script(loaders={"train": OURS, "again": OURS, "val": OURS}),
    "volumes":     Script(loaders={"train": OURS, "val": OURS}),
    "triplets":    Script(loaders={"train": OURS}),
    "multitask":   Script(loaders={"labelled": OURS, "coloured": OURS, "bright": NO_WORKERS}),
    "curriculum":  Script(loaders={"train": OURS, "review": OURS}),
    "imbalance":   Script(loaders={"train": SPAWNED, "val": NO_WORKERS}),
    "buckets":     Script(loaders={"train": OURS}),
    "lm_shards":   Script(loaders={"train": ITERABLE, "val": NO_WORKERS}),
}
# fmt: on

# One thread: some sums on the CPU depend on the number of threads. No GPU: theirs are not ordered.
ENVIRON = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture(scope="module")
def training_data(tmp_path_factory):
    for package in ("PIL", "skimage", "sklearn"):
        pytest.importorskip(package)
    from tests.equality.script_data import make_all

    folder = tmp_path_factory.mktemp("training-data")
    make_all(folder)
    return folder


@pytest.mark.parametrize("name", CORPUS)
def test_a_script_gets_the_same_batches_and_prints_the_same_losses(name, training_data, tmp_path):
    script = CORPUS[name]
    for package in script.needs:
        pytest.importorskip(package)
    for number, arguments in enumerate(script.runs):
        command = command_of(name, training_data, *arguments)
        torchs = play(command, tmp_path / "torch", number, "--off")
        ours = play(command, tmp_path / "ours", number)
        assert_same_run(torchs, ours)
        assert_as_expected(torchs, ours, script)
    assert saved(tmp_path / "ours") == saved(tmp_path / "torch")


def command_of(name: str, data: Path, *arguments: str) -> list[str]:
    return [sys.executable, str(FOLDER / f"{name}.py"), "--data", str(data), *arguments]


def play(command: list[str], side: Path, number: int, *flags: str) -> Finished:
    """One run of a command under stoker, in its side's folder `work`."""
    folder, work = side / str(number), side / "work"
    work.mkdir(parents=True, exist_ok=True)
    report = f"--report-json={folder / 'report.json'}"
    return finished(
        [*under_stoker("--hash-batches", report, *flags), *command],
        folder, cwd=work, environ=ENVIRON,
    )  # fmt: skip


def assert_same_run(torchs: Finished, ours: Finished) -> None:
    assert ours.returncode == torchs.returncode, ours.stderr
    assert batches(torchs.report), "nothing was hashed: the test tests nothing"
    assert batches(ours.report) == batches(torchs.report)
    assert torchs.stdout
    assert ours.stdout == torchs.stdout
    assert told(ours.stderr) == told(torchs.stderr)
    assert ours.leftovers == {}
    assert set(ours.left_files()) <= set(torchs.left_files())  # torch's optimisers leave a folder


def assert_as_expected(torchs: Finished, ours: Finished, script: Script) -> None:
    assert ours.returncode == script.ends, ours.stderr
    assert not any(loader["offloaded"] for loader in torchs.report["loaders"])
    got = dict.fromkeys(script.loaders)
    for name, loader in zip(script.loaders, ours.report["loaders"], strict=True):
        reason = " ".join(loader["reasons"])
        expected = script.loaders[name]
        is_expected = expected in reason if expected else loader["offloaded"]
        got[name] = expected if is_expected else reason
    assert got == script.loaders


def batches(report: dict) -> dict[tuple[object, ...], list[str]]:
    """Digests of each loader's batches, by the loader's number, place and size."""
    return {
        (number, loader["place"], loader["num_samples"]): loader["batches_sha256"]
        for number, loader in enumerate(report["loaders"])
    }


def told(stderr: str) -> list[str]:
    """The warnings, without the file that they name (docs/guarantees.md, known differences)."""
    return re.findall(r"\b[A-Z]\w*Warning: .*", stderr)


def saved(side: Path) -> dict[str, bytes]:
    """What the script wrote in its folder."""
    files = sorted((side / "work").rglob("*"))
    return {file.name: file.read_bytes() for file in files if file.is_file()}
