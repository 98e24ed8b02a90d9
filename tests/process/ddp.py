"""Runs of scripts/ddp_cases.py under torchrun, and what their ranks saved."""

import json
import sys
from pathlib import Path

import torch

from tests.process.harness import Finished, finished, under_stoker

NUM_RANKS = 3


class Ran:
    """What one run's ranks saved: case -> rank -> gradients of each step."""

    def __init__(
        self, folder: Path, flags: list[str] | None, cases: list[str], **more: str
    ) -> None:
        folder.mkdir()
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={NUM_RANKS}"]
        command = [sys.executable, *torchrun, "ddp_cases.py", str(folder), *cases]
        report = f"--report-json={folder / 'report.json'}"
        prefix = [] if flags is None else under_stoker(report, *flags, quiet=False)
        environ = {"OMP_NUM_THREADS": "1", "TELL_FD": ""} | more
        self.finished: Finished = finished([*prefix, *command], folder / "at", environ=environ)
        assert self.finished.returncode == 0, self.finished.stderr
        assert self.finished.leftovers == {}
        self.folder = folder

    def saved(self, case: str) -> list[list[list[torch.Tensor | None]]]:
        return [torch.load(self.folder / f"{case}.{rank}") for rank in range(NUM_RANKS)]

    def told(self) -> list[list[object]]:
        return [json.loads((self.folder / f"told.{rank}").read_text()) for rank in range(NUM_RANKS)]


def flat(steps):
    return [g for step in steps for g in step if g is not None]


def bits(tensor):
    return tensor.reshape(-1).view(torch.uint8)
