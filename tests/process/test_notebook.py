"""stoker in code and in a notebook: a real kernel, batches hashed against torch's in the same run."""

import json
import sys

import pytest

import stoker
from tests.process.harness import finished

DATA = """\
import hashlib, torch
from torch.utils.data import DataLoader, Dataset
class Noise(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.rand(3), index
# A class of a cell reaches workers by a fork alone, with torch too.
loader = DataLoader(Noise(), 4, shuffle=True, num_workers=2, multiprocessing_context="fork")
def hashed():
    torch.manual_seed(7)
    digest = hashlib.sha256()
    for x, y in loader:
        digest.update(x.numpy().tobytes() + y.numpy().tobytes())
    return digest.hexdigest()
"""


@pytest.fixture
def executed(tmp_path):
    """Runs cells in a kernel; returns the outputs of each."""

    def run(*cells):
        ran = finished([sys.executable, "notebook.py", json.dumps(cells)], tmp_path)
        assert ran.returncode == 0, ran.stderr
        assert ran.leftovers == {}
        return json.loads(ran.stdout)

    return run


def text_of(outputs):
    return "".join(each.get("text") or each["data"]["text/plain"] for each in outputs)


def test_a_notebook_has_the_same_batches_and_a_summary_below_each_cell_that_took_some(executed):
    outputs = executed(
        DATA,
        "plain = hashed()",
        "%load_ext stoker",
        "ours = hashed()",
        "plain == ours, type(iter(loader)).__name__",
        "hashed(); 1 + 1",
        "import stoker; stoker.report()",
        "%unload_ext stoker",
        "hashed() == plain, type(iter(loader)).__name__",
    )
    assert outputs[0] == outputs[1] == outputs[2] == []
    assert text_of(outputs[4]) == "(True, 'StreamIterator')"
    (shown,) = outputs[3]
    lines = shown["data"]["text/plain"].splitlines()
    assert lines[0].startswith("stoker: 16 batches in ") and len(lines) <= 5
    assert lines[1] == "stoker: cell 1:13: 16 batches by 2 workers"
    assert "<td>cell 1:13</td><td>16</td><td>64</td>" in shown["data"]["text/html"]
    assert {each["output_type"] for each in outputs[5]} == {"display_data", "execute_result"}
    assert "stoker: 16 batches in " in text_of(outputs[5])  # the cell's own, not the run's
    assert "stoker: 32 batches in " in text_of(outputs[6])
    assert text_of(outputs[8]) == "(True, '_MultiProcessingDataLoaderIter')"


def test_a_cell_that_is_interrupted_or_raises_leaves_the_kernel_whole(executed):
    outputs = executed(
        DATA,
        "plain = hashed()",
        "%load_ext stoker",
        "try:\n    for batch in loader:\n        raise KeyboardInterrupt\nexcept KeyboardInterrupt:\n    pass",
        "hashed() == plain",
    )
    assert "stoker: 1 batch in " in text_of(outputs[3])
    assert "True" in text_of(outputs[4])


CODE = (
    DATA
    + """
plain = hashed()
import stoker
stoker.install({values})
assert hashed() == plain and type(iter(loader)).__name__ == "StreamIterator"
before = stoker.report()
hashed()
after = stoker.report()
print(before.num_batches, after.num_batches, before.loaders[0].num_workers)
stoker.uninstall()
assert hashed() == plain and type(iter(loader)).__name__ == "_MultiProcessingDataLoaderIter"
"""
)


@pytest.mark.parametrize("values", ["quiet=True", 'quiet=True, memory="1M", chains="script"'])
def test_a_program_installs_it_after_torch_was_imported(tmp_path, values):
    ran = finished([sys.executable, "-c", CODE.replace("{values}", values)], tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "16 32 2\n"
    assert ran.leftovers == {}


def test_a_program_installs_it_before_torch_is_imported(tmp_path):
    program = f"import stoker\nstoker.install()\n{DATA}\nhashed()"
    ran = finished([sys.executable, "-c", program], tmp_path)
    assert ran.returncode == 0
    assert ran.stderr.splitlines()[1].endswith(": 16 batches by 2 workers")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"wokers": 2}, "install: no setting 'wokers' (did you mean workers?)"),
        ({"workers": 0}, "--workers: workers: got '0'; give a number >= 1"),
        ({"memory": "1k"}, "--memory: memory: got '1k'; give 1M or more"),
    ],
)
def test_a_setting_that_cannot_be_changes_nothing(values, said):
    with pytest.raises(stoker.ConfigError) as caught:
        stoker.install(**values)
    assert str(caught.value).startswith(said)


def test_a_report_without_a_loader_is_empty_and_frozen():
    found = stoker.report()
    assert (found.num_batches, found.loaders) == (0, ())
    with pytest.raises(AttributeError):
        found.num_batches = 1
