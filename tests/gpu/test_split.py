"""Where the time of steps goes, on a GPU: what it does while the training thread waits is not waiting."""

import contextlib
import json
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from stoker.stalls.device import Marks
from stoker.stalls.split import Seen, split_of
from tests.process.harness import finished, under_stoker

SCRIPT = Path(__file__).with_name("split_on_gpu.py")
POINTS = 0.03
# Seconds of data, model, copy; then whether the script waits for each step.
STEPS = {
    "data, hidden": (0.06, 0.15, 0.0, False),
    "data, half hidden": (0.15, 0.08, 0.0, False),
    "data, not hidden": (0.1, 0.1, 0.0, True),
    "a copy that waits for its turn": (0.0, 0.15, 0.0, False),
    "copies": (0.0, 0.1, 0.1, True),
    "copies, and the step before them": (0.0, 0.1, 0.1, False),
}


PLAIN = [("--off", "data, hidden"), ("--off", "copies, and the step before them")]


@pytest.mark.parametrize(
    ("flags", "parts"),
    [([], parts) for parts in STEPS.values()] + [([flag], STEPS[name]) for flag, name in PLAIN],
    ids=[*STEPS, *[f"plain, {name}" for _, name in PLAIN]],
)
def test_a_split_is_what_the_script_knows_it_to_be(tmp_path, parts, flags):
    *seconds, waits = parts
    words = [*map(str, seconds), "80", *(["--waits"] if waits else [])]
    report = f"--report-json={tmp_path / 'report.json'}"
    result = finished(
        [*under_stoker(report, *flags), sys.executable, str(SCRIPT), *words], tmp_path
    )
    assert result.returncode == 0, result.stderr
    known = json.loads(result.stdout.splitlines()[-1])
    (loader,) = result.report["loaders"]
    split = split_of(loader["wait_s"], loader["busy_s"], Seen(**loader["seen"]))
    whole_s = sum(split)
    truth = {name: part_s / sum(known.values()) for name, part_s in known.items()}
    print(parts, flags, {name: part_s / whole_s for name, part_s in split._asdict().items()}, truth)
    assert split.copy_s / whole_s == pytest.approx(truth["copy_s"], abs=POINTS)
    assert split.compute_s / whole_s == pytest.approx(truth["compute_s"], abs=POINTS)
    waited_s = split.data_s + split.own_s
    assert waited_s / whole_s == pytest.approx(truth["data_s"], abs=POINTS)


def capture_while(asks):
    """Capture a graph of many kernels while another thread asks; return what it computes."""
    done, num_asked = threading.Event(), [0]

    def ask():
        while not done.is_set():
            asks()
            num_asked[0] += 1

    thread = threading.Thread(target=ask)
    x = torch.ones(1000, device="cuda")
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    thread.start()
    try:
        with torch.cuda.graph(
            graph
        ):  # in the global mode, which any call of another thread's may end
            y = x
            for _ in range(200):
                y = y + 1
                time.sleep(1e-4)  # lets go of the interpreter
    finally:
        done.set()
        thread.join()
    graph.replay()
    assert num_asked[0] > 20
    return y.sum().item()


def test_to_ask_breaks_no_graph_that_the_script_captures():
    marks = Marks()
    marks.mark()
    assert capture_while(marks.is_behind) == 201_000
    assert marks.is_behind() is False


def test_a_mark_is_in_no_graph():
    marks = Marks()
    marks.mark()
    assert capture_while(lambda: None) == 201_000
    graph, x = torch.cuda.CUDAGraph(), torch.ones(1, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        marks.mark()
        y = x + 1
    graph.replay()
    assert y.item() == 2


def test_without_the_relaxed_mode_it_would_break_them():
    """Why the driver is asked in place of torch."""
    event = torch.cuda.Event()
    event.record()

    def ask():
        with contextlib.suppress(Exception):
            event.query()

    with pytest.raises(RuntimeError, match="capture"):
        capture_while(ask)


def test_to_ask_in_a_thread_that_has_no_gpu_takes_no_memory_of_one():
    marks = Marks()
    torch.cuda._sleep(2_000_000_000)
    marks.mark()
    free_before = torch.cuda.mem_get_info()[0]
    found = []
    thread = threading.Thread(target=lambda: found.append(marks.is_behind()))
    thread.start()
    thread.join()
    assert found == [True]
    assert torch.cuda.mem_get_info()[0] == free_before
    torch.cuda.synchronize()
    assert not marks.is_behind()
