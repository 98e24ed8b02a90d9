"""Twenty training scripts of as many genres: every batch, every printed loss, every file is torch's.

Each runs once with every loader left to torch and once under stoker. Equal must be: the digest of
each batch of each loader in order, standard output, the texts of warnings, the exit code, and the
bytes of all that the script saves. What is expected of each loader stands in CORPUS.
"""

import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.process.harness import Finished, finished, under_stoker

FOLDER = Path(__file__).parents[1] / "scripts"

# What becomes of a loader. All but OURS are a part of the reason why torch keeps it: when stoker
# takes over such loaders, the constant becomes OURS, or single entries of CORPUS do.
OURS = ""
NO_WORKERS = "num_workers=0"


@dataclass(frozen=True, kw_only=True)
class Script:
    """What a script is expected to do.

    loaders: in the order of their first iteration, once for each line that iterates them.
    runs: arguments of each run, one after the other in the same folder; ends: their exit code.
    plainly: whether it also runs without any stoker.
    """

    loaders: dict[str, str]
    runs: tuple[list[str], ...] = ([],)
    ends: int = 0
    plainly: bool = False
    needs: list[str] = field(default_factory=list)


# fmt: off
CORPUS = {
    "imagenet":    Script(loaders={"train": OURS, "val": OURS}, needs=["torchvision"]),
    "cifar":       Script(loaders={"train": OURS, "val": OURS}),
    "voc":         Script(loaders={"train": OURS, "val": OURS}),
    "coco":        Script(loaders={"train": OURS, "val": OURS}, plainly=True),
    "speech":      Script(loaders={"train": OURS, "val": OURS}),
    "lm_tokens":   Script(loaders={"train": OURS, "val": OURS}, runs=([], ["--resume", "--max-iters=24"])),
    "gan":         Script(loaders={"photos": OURS, "sketches": OURS, "sketches, anew": OURS, "photos, anew": OURS}),
    "contrastive": Script(loaders={"train": OURS}, needs=["torchvision"]),
    "graphs":      Script(loaders={"train": OURS, "val": OURS}),
    "video":       Script(loaders={"train": OURS, "val": OURS}),
    "tabular":     Script(loaders={"train": OURS, "val": NO_WORKERS, "test": OURS}),
    "forecast":    Script(loaders={"train": OURS, "val": NO_WORKERS}, ends=3, plainly=True),
    "pointcloud":  Script(loaders={"train": OURS, "again": OURS, "val": OURS}),
    "volumes":     Script(loaders={"train": OURS, "val": OURS}),
    "triplets":    Script(loaders={"train": OURS}),
    "multitask":   Script(loaders={"labelled": OURS, "coloured": OURS, "bright": NO_WORKERS}),
    "curriculum":  Script(loaders={"train": OURS, "review": OURS}),
    "imbalance":   Script(loaders={"train": OURS, "val": NO_WORKERS}),
    "buckets":     Script(loaders={"train": OURS}),
    "lm_shards":   Script(loaders={"train": OURS, "val": OURS}, plainly=True),
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


def test_every_script_stands_in_the_table():
    assert sorted(file.stem for file in FOLDER.glob("*.py")) == sorted(CORPUS)


@pytest.mark.few(2)
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
        if script.plainly:
            plain = play(command, tmp_path / "plain", number, armed=False)
            assert (plain.stdout, plain.returncode) == (ours.stdout, ours.returncode)
    assert saved(tmp_path / "ours") == saved(tmp_path / "torch")
    assert not script.plainly or saved(tmp_path / "plain") == saved(tmp_path / "torch")


@pytest.mark.full
def test_two_ranks_get_the_same_batches_and_print_the_same_losses(training_data, tmp_path):
    pytest.importorskip("torchvision")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*launcher, *command_of("imagenet", training_data, "--epochs=1")[1:]]
    torchs, ours = (
        play(command, tmp_path / name, 0, *flags)
        for name, flags in (("torch", ["--off"]), ("ours", []))
    )
    for rank in range(2):
        torch_report, our_report = (
            json.loads((side.folder / f"report.{rank}.json").read_text()) for side in (torchs, ours)
        )
        assert batches(our_report) == batches(torch_report)
        assert [loader["num_batches"] for loader in our_report["loaders"]] == [4, 2]
        assert all(loader["offloaded"] for loader in our_report["loaders"])
    assert (ours.stdout, ours.returncode) == (torchs.stdout, 0)
    assert ours.leftovers == {}
    assert saved(tmp_path / "ours") == saved(tmp_path / "torch")


def test_batches_of_other_seeds_are_told_apart(training_data, tmp_path):
    """That the comparison can fail: one worker more draws other numbers."""
    command = command_of("voc", training_data, "--epochs=1")
    torchs = play(command, tmp_path / "torch", 0, "--off")
    ours = play(command, tmp_path / "ours", 0, "--chains=3")
    assert batches(ours.report) != batches(torchs.report)
    assert ours.stdout != torchs.stdout
    assert saved(tmp_path / "ours") != saved(tmp_path / "torch")


def command_of(name: str, data: Path, *arguments: str) -> list[str]:
    return [sys.executable, str(FOLDER / f"{name}.py"), "--data", str(data), *arguments]


def play(command: list[str], side: Path, number: int, *flags: str, armed: bool = True) -> Finished:
    """One run of a command in its side's folder `work`; under stoker, or plain Python's."""
    folder, work = side / str(number), side / "work"
    work.mkdir(parents=True, exist_ok=True)
    if armed:
        report = f"--report-json={folder / 'report.json'}"
        command = [*under_stoker("--hash-batches", report, *flags), *command]
    return finished(command, folder, cwd=work, environ=ENVIRON)


def assert_same_run(torchs: Finished, ours: Finished) -> None:
    assert ours.returncode == torchs.returncode, ours.stderr
    assert batches(torchs.report), "no loader was iterated: the test tests nothing"
    assert all(batches(torchs.report).values()), "a loader gave nothing: the test tests nothing"
    assert batches(ours.report) == batches(torchs.report)
    assert torchs.stdout
    assert ours.stdout == torchs.stdout
    assert warnings_in(ours.stderr) == warnings_in(torchs.stderr)
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


def batches(report: dict[str, Any]) -> dict[tuple[object, ...], list[str]]:
    """Digests of each loader's batches, by the loader's number, place and size."""
    return {
        (number, loader["place"], loader["num_samples"]): loader["batches_sha256"]
        for number, loader in enumerate(report["loaders"])
    }


def warnings_in(stderr: str) -> list[str]:
    """The warnings, without the file that they name (docs/guarantees.md, known differences)."""
    return re.findall(r"\b[A-Z]\w*Warning: .*", stderr)


def saved(side: Path) -> dict[str, bytes]:
    """What the script wrote in its folder."""
    files = sorted((side / "work").rglob("*"))
    return {file.name: file.read_bytes() for file in files if file.is_file()}
