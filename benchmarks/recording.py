"""What it costs a training loop that its thread is looked at fifty times a second: one --case a kind of step of 20 ms.

`model` trains a small network on one thread, `python` computes in pure Python, which the looking thread must interrupt.
Windows with and without it take turns in one process, so that neither is measured in another minute than the
other. Prints cost_percent: the median, over all pairs of windows, of how many fewer steps a window has.
"""

import _thread
import argparse
import statistics
import time
from collections.abc import Callable

import torch
from one_side import print_line

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
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--windows", type=int, default=60, help="pairs of them")
    parser.add_argument("--window-s", type=float, default=0.5)
    flags = parser.parse_args()
    step = CASES[flags.case]()
    num = size_of_step(step)
    window(step, num, 2 * flags.window_s)
    sampler = sampler_of(lambda kind, seconds: None, float, _thread.get_ident())
    assert sampler is not None
    costs, rates = [], []
    for k in range(flags.windows):
        sides = (sampler.start, sampler.stop) if k % 2 else (sampler.stop, sampler.start)
        found = {}
        for side in sides:
            side()
            found[side.__name__] = window(step, num, flags.window_s)
        costs.append(1 - found["start"] / found["stop"])
        rates.append(found["stop"])
    sampler.stop()
    print_line(
        {"cost_percent": 100 * statistics.median(costs), "steps_per_s": statistics.median(rates)}
    )


if __name__ == "__main__":
    main()
