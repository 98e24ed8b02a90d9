"""What a core elsewhere gains where the trainer's one core is shared by the step and the data.

The trainer and all its processes are held to the first core; a worker of stoker to the second, in a
network namespace of its own: veth, TLS, the codec on. The data are those of images.py. The step is
matrix products in the training process, as many as cost the CPU what a batch's data costs there,
which is measured first. In turn, both warmed: torch with the num_workers of 0, 1 and 2 that suits it
best, and stoker. Prints batches_per_s of both, `gain`, the median of their ratios, at most 2, and
what CPU a batch of stoker's takes: elsewhere, of the receiver, and of the training process but for
its step.
Not a plain script: plain torch has no core elsewhere; both sides run in this process.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from itertools import islice

import torch
from behind_link import fleet, link, stoker_with, wait_away
from images import make_loader
from one_side import print_line
from processes import cpu_s_of_all, descendants

NUM_HOSTS = 1  # one CPU elsewhere
NUM_WORKERS = 2  # of stoker's side: one makes a batch while the other's is sent
TRIED = (0, 1, 2)  # num_workers of torch's
DRAINED = 6  # batches: more than wait from before
SETTLE_S = 2.0  # the other side fills what it has ahead, and then is idle
UNIT_EDGE = 512  # of a square matrix: products fit the caches


class Step:
    """So much arithmetic, and nothing else: slower where the core is shared."""

    def __init__(self) -> None:
        self.matrix = torch.rand(UNIT_EDGE, UNIT_EDGE) / UNIT_EDGE
        self.num_units = 200
        self()  # warm
        self.unit_s = statistics.median(cpu_s_in(self) for _ in range(5)) / self.num_units

    def __call__(self) -> None:
        for _ in range(self.num_units):
            torch.mm(self.matrix, self.matrix)

    def cost(self, seconds: float) -> None:
        """From now on, so much CPU."""
        self.num_units = round(seconds / self.unit_s)


def cpu_s_in(work: Callable[[], object]) -> float:
    start_s = time.process_time()
    work()
    return time.process_time() - start_s


def data_cpu_s() -> float:
    """Of one batch, made by this process alone."""
    batches = iter(make_loader(0))
    next(batches)
    return statistics.median(cpu_s_in(lambda: next(batches)) for _ in range(8))


class Side:
    """A training loop, in pieces. receiver: stoker's process beside this one; 0: there is none."""

    def __init__(self, iterator: object, step: Step, has_ahead: bool, receiver: int = 0) -> None:
        self.iterator, self.step, self.receiver = iterator, step, receiver
        self.num_drained = DRAINED if has_ahead else 0
        self.num_counted = 0
        self.used_s = [0.0, 0.0, 0.0]  # CPU: of this process, the receiver, all below that

    def measure(self, seconds: float) -> float:
        """Batches a second; what waits from before is left out."""
        time.sleep(SETTLE_S)
        for _ in islice(self.iterator, self.num_drained):
            pass
        self._turn()
        before_s, start_s, num = self._used(), time.perf_counter(), 0
        while time.perf_counter() - start_s < seconds:
            self._turn()
            num += 1
        wall_s = time.perf_counter() - start_s
        self.num_counted += num
        columns = zip(self.used_s, self._used(), before_s, strict=True)
        self.used_s = [sum_s + now_s - then_s for sum_s, now_s, then_s in columns]
        return num / wall_s

    def _turn(self) -> None:
        next(self.iterator)
        self.step()

    def _used(self) -> tuple[float, float, float]:
        if not self.receiver:
            return time.process_time(), 0.0, 0.0
        below = cpu_s_of_all(descendants(self.receiver))
        return time.process_time(), cpu_s_of_all([self.receiver]), below


def best_of_torch(step: Step, seconds: float) -> tuple[Side, dict[str, float]]:
    """The side with the num_workers that suits it, and what each gave."""
    sides = {w: Side(iter(make_loader(w)), step, w > 0) for w in TRIED}
    rates = {w: side.measure(seconds) for w, side in sides.items()}
    best = max(rates, key=rates.__getitem__)
    return sides[best], {f"torch_{w}_batches_per_s": rate for w, rate in rates.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    flags = parser.parse_args()
    here, elsewhere, *_ = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {here})
    torch.set_num_threads(1)
    step, wanted_s = Step(), data_cpu_s()
    step.cost(wanted_s)
    theirs, tried = best_of_torch(step, flags.seconds)
    found: list[tuple[float, float]] = []
    with link(), fleet(NUM_HOSTS, cpus=str(elsewhere)) as made:
        with stoker_with(made, has_local_share=True):
            iterator = iter(make_loader(NUM_WORKERS))
            wait_away(iterator, NUM_HOSTS)
        ours = Side(iterator, step, has_ahead=True, receiver=made._process.pid)
        for number in range(flags.rounds + 1):
            pair = ours.measure(flags.seconds), theirs.measure(flags.seconds)
            if number:  # the first warms both
                found.append(pair)
        num_away, step_s = iterator._driver.stats.num_away, cpu_s_in(step)
        trainer_s, receiver_s, elsewhere_s = (used_s / ours.num_counted for used_s in ours.used_s)
        del ours, iterator
    print_line(
        {
            "batches_per_s": statistics.median(rate for rate, _ in found),
            "torch_batches_per_s": statistics.median(rate for _, rate in found),
            "gain": statistics.median(rate / other for rate, other in found),
            "num_away": num_away,
            "data_cpu_s": wanted_s,
            "step_cpu_s": step_s,
            "trainer_cpu_s": trainer_s - step_s,
            "receiver_cpu_s": receiver_s,
            "elsewhere_cpu_s": elsewhere_s,
            **tried,
        }
    )


if __name__ == "__main__":
    main()
