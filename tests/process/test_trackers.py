"""The recipes of docs/how-to/trackers.md, run as they stand there: W&B offline, MLflow in a folder."""

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.process.harness import finished, under_stoker

pytestmark = pytest.mark.full

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "trackers.md"
RECIPES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
LOOP = """
import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.rand(64, 4)), batch_size=4, num_workers=1)
{before}
for epoch in range(2):
    for batch in loader:
        pass
    log_waiting({argument})
{after}
"""


def ran(tmp_path, recipe, environ, **parts):
    script = tmp_path / "train.py"
    script.write_text(recipe + LOOP.format(**parts))
    command = [*under_stoker(), sys.executable, str(script)]
    result = finished(command, tmp_path, environ=environ, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    return result


@pytest.mark.skipif(find_spec("wandb") is None, reason="needs wandb")
def test_weights_and_biases_has_what_was_waited_for(tmp_path):
    environ = {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true"}
    ran(
        tmp_path,
        RECIPES[0],
        environ,
        before="run = wandb.init(project='p')",
        argument="",
        after="run.finish()",
    )
    (kept,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    text = kept.read_bytes()
    assert text.count(b"stoker/wait_share") >= 2
    assert re.search(rb"stoker/train.py:\d+/samples", text)


@pytest.mark.skipif(find_spec("mlflow") is None, reason="needs mlflow")
def test_mlflow_has_what_was_waited_for(tmp_path):
    environ = {
        "MLFLOW_TRACKING_URI": f"file://{tmp_path / 'runs'}",
        "MLFLOW_ALLOW_FILE_STORE": "true",
    }
    ran(tmp_path, RECIPES[1], environ, before="", argument="epoch", after="mlflow.end_run()")
    (batches,) = (tmp_path / "runs").rglob("metrics/stoker_batches")
    assert [line.split()[1] for line in batches.read_text().splitlines()] == ["16.0", "32.0"]
    assert list((tmp_path / "runs").rglob("stoker-report.json"))
