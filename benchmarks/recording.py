"""What it costs a training loop that a run is recorded: one --case a kind of loop.

`model` trains a small network on one thread, `python` computes in pure Python, which the looking thread must interrupt: steps of 20 ms,
whose thread is looked at fifty times a second. `images` takes the batches of images.py under stoker, with all that is recorded:
the log, its keeper and the page, the looks at thread and workers. Windows with and without it take turns in one process, so that neither is measured in another minute than the
other. Prints cost_percent: the median, over all pairs of windows, of how many fewer steps a window has.
"""

import _thread
import argparse
import atexit
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from one_side import num_usable_cores, print_line

from stoker.stalls.sampler import sampler_of

STEP_S = 0.02
BATCH_SIZE, WIDTH = 64, 256


def of_model() -> Callable[[int], None]:
    torch.set_num_threads(1)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    batch = torch.rand(BATCH_SIZE, WIDTH)

    def step(num: int) -> None:
        for _ in range(num):
            model(batch).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    return step


def of_python() -> Callable[[int], None]:
    def step(num: int) -> None:
        total = 0
        for k in range(num):
            total += k * k % 7

    return step


CASES = {"model": of_model, "python": of_python}
IMAGES_WINDOW_S = 2.0  # some forty batches


class Sides:
    """Switches recording on and off; `start` and `stop` are called in turns."""

    def __init__(self, sampler: Any, recorder: Any = None) -> None:
        self._sampler, self._recorder = sampler, recorder
        self._log = None if recorder is None else recorder._log

    def start(self) -> None:
        if self._recorder is not None:
            self._recorder._log = self._log
        self._sampler.start()

    def stop(self) -> None:
        self._sampler.stop()
        if self._recorder is not None:
            self._recorder._log = None


def of_images() -> tuple[Callable[[int], None], Sides]:
    """Return what takes batches of a loader that stoker serves, and what switches the recording of it."""
    from images import BATCH_SIZE, Photos
    from photos import photo_folder
    from torch.utils.data import DataLoader

    import stoker
    from stoker.intercept import run

    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    report = str(Path(folder.name, "report.json"))
    stoker.install(quiet=True, cache="off", page="127.0.0.1:0", report_json=report)
    dataset = Photos(photo_folder(), num_rounds=1000)
    loader = DataLoader(
        dataset, batch_size=BATCH_SIZE // 4, shuffle=True, num_workers=num_usable_cores()
    )
    batches = iter(loader)

    def step(num: int) -> None:
        for _ in range(num):
            next(batches)

    step(20)
    recorder = run.recorder()
    assert recorder._log is not None and recorder._sampler is not None and recorder.newest.offloaded
    return step, Sides(recorder._sampler, recorder)


def window(step: Callable[[int], None], num: int, count_s: float) -> float:
    """Return the steps a second."""
    began_s, num_steps = time.perf_counter(), 0
    while (took_s := time.perf_counter() - began_s) < count_s:
        step(num)
        num_steps += 1
    return num_steps / took_s


def size_of_step(step: Callable[[int], None]) -> int:
    """Return how often a step's work is to be done for it to take STEP_S."""
    num = 1
    while True:
        began_s = time.perf_counter()
        step(num)
        took_s = time.perf_counter() - began_s
        if took_s > STEP_S:
            return max(1, round(num * STEP_S / took_s))
        num *= 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=[*CASES, "images"], required=True)
    parser.add_argument("--windows", type=int, default=60, help="pairs of them")
    parser.add_argument("--window-s", type=float, default=0.5)
    flags = parser.parse_args()
    if flags.case == "images":
        (step, switch), num, flags.window_s = of_images(), 1, IMAGES_WINDOW_S
    else:
        step = CASES[flags.case]()
        num = size_of_step(step)
        sampler = sampler_of(lambda kind, seconds: None, float, _thread.get_ident())
        assert sampler is not None
        switch = Sides(sampler)
    window(step, num, 2 * flags.window_s)
    costs, rates = [], []
    for k in range(flags.windows):
        sides = (switch.start, switch.stop) if k % 2 else (switch.stop, switch.start)
        found = {}
        for side in sides:
            side()
            found[side.__name__] = window(step, num, flags.window_s)
        costs.append(1 - found["start"] / found["stop"])
        rates.append(found["stop"])
    switch.stop()
    print_line(
        {"cost_percent": 100 * statistics.median(costs), "steps_per_s": statistics.median(rates)}
    )


if __name__ == "__main__":
    main()
