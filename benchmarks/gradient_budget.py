"""Validation loss after the same seconds of training on a thin link, compressed in four ways.

Plain DDP, torch's fp16 hook, torch's PowerSGD of rank 1 and stoker's 4 bits, one after another, in
processes of their own; the same model, batches, optimiser and rates, the order by the seed, which is
another one in every run. A character transformer of 3.2M parameters on the text that Python ships;
four ranks, each in a network namespace of its own, behind a link that tc holds. 100 Mbit/s beside
half a core is what 1 Gbit/s at home is beside five: it takes a step as many times its computing.
Looks at the validation loss stop the clock; all else counts, stoker's trial too. Prints each way's
last loss and number of steps, `of_powersgd`, the ratio of stoker's loss to PowerSGD's, and
`gain_over_fp16`: how many times sooner stoker has the loss that the fp16 hook ends with (0: never).
Not a plain script: every run has all the sides; there is one side only.
"""

import argparse
import datetime
import json
import math
import random
import sys
import time
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.distributed as dist
from gradient_accuracy import Characters, Text
from one_side import print_line
from ranks import leave, links, start
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

NUM_RANKS = 4
WAYS = ("fp32", "fp16", "powersgd", "stoker")
WIDTH, NUM_LAYERS = 256, 4
# AdamW at torch's own rate: of that and SGD with momentum (0.03, 0.1) the lowest loss after 60 steps
# of one process, in fp32 and without any link. No way was asked which it likes.
NUM_WARM = 5  # steps until the rate is reached
LOOK_EVERY_S = 2.0
POWER_START = 2  # fp32 steps before PowerSGD: the fewest that torch takes, for each costs seconds
ONE_BUCKET_MB = 1000  # gloo aborts where PowerSGD has several: its callbacks begin collectives
PATIENCE = datetime.timedelta(seconds=120)

Looks = list[tuple[float, float]]  # seconds of training, validation loss


def averaged(way: str, model: torch.nn.Module, power_start: int) -> DistributedDataParallel:
    if way == "stoker":
        from stoker.config import Settings
        from stoker.intercept import patches, run

        run.begin(Settings(gradients="4bit"))
        patches.install_ddp()
    model = DistributedDataParallel(
        model, bucket_cap_mb=ONE_BUCKET_MB if way == "powersgd" else None
    )
    if way == "powersgd":
        state = PowerSGDState(None, 1, start_powerSGD_iter=power_start)
        model.register_comm_hook(state, powerSGD_hook)
    elif way == "fp16":
        model.register_comm_hook(None, fp16_compress_hook)
    return model


class Training:
    def __init__(self, way: str, seed: int, power_start: int) -> None:
        self.text, own = Text(), dist.get_rank()
        num_rows = len(self.text.val) // NUM_RANKS  # each rank's share
        self.text.val = self.text.val[own::NUM_RANKS][:num_rows]
        self.batches = torch.Generator().manual_seed(100 * seed + own)
        torch.manual_seed(seed)
        model = Characters(self.text.num, WIDTH, NUM_LAYERS)
        self.model = averaged(way, model, power_start)
        self.optimiser = torch.optim.AdamW(model.parameters())
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimiser, lambda step: min(1.0, (step + 1) / NUM_WARM)
        )
        self.num_steps = 0

    def step(self) -> None:
        loss = self.text.loss(self.model, *self.text.batch(self.batches))
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.schedule.step()
        self.num_steps += 1

    def look(self) -> float:
        self.model.eval()
        with torch.no_grad():
            loss = torch.tensor(self.text.val_loss(self.model.module)) / NUM_RANKS
        self.model.train()
        dist.all_reduce(loss)
        return loss.item()

    def looks(self, budget_s: float) -> Looks:
        """Trains; all ranks stop by the clock of the first, which they hear after every step."""
        found, clock_s = [(0.0, self.look())], torch.zeros(1, dtype=torch.float64)
        while clock_s < budget_s:
            begin_s, next_s = time.perf_counter() - clock_s.item(), clock_s.item() + LOOK_EVERY_S
            while clock_s < min(next_s, budget_s):
                self.step()
                clock_s.fill_(time.perf_counter() - begin_s)
                dist.broadcast(clock_s, 0)
            found.append((clock_s.item(), self.look()))
        return found


def rank(flags: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=PATIENCE)
    training = Training(flags.rank, flags.seed, flags.power_start)
    looks = training.looks(flags.budget_s)
    if dist.get_rank() == 0:
        print_line({"looks": looks, "num_steps": training.num_steps})


def reached_s(looks: Looks, target: float) -> float:
    """When the loss first was as low, on the straight line between two looks; never: infinity."""
    for (before_s, before), (after_s, after) in pairwise(looks):
        if after <= target:
            return before_s + (after_s - before_s) * (before - target) / (before - after)
    return math.inf


def trained(way: str, own: Sequence[str]) -> tuple[Looks, int]:
    """A way's looks and its number of steps."""
    ranks = start(NUM_RANKS, [__file__, "--rank", way, *own])
    told = [process.communicate()[0] for process in ranks]
    if any(process.returncode for process in ranks):
        sys.exit(f"{way}: a rank failed")
    line = json.loads(told[0].splitlines()[-1])
    print(way, told[0], file=sys.stderr)
    return line["looks"], line["num_steps"]


def lead(flags: argparse.Namespace) -> None:
    own = ["--seed", str(flags.seed), "--budget-s", str(flags.budget_s)]
    own += ["--power-start", str(flags.power_start)]
    order = random.Random(flags.seed).sample(flags.ways, len(flags.ways))
    with links(NUM_RANKS, flags.rate):
        found = {way: trained(way, own) for way in order}
    line: dict[str, float] = {"seed": flags.seed}
    for way in flags.ways:
        looks, num_steps = found[way]
        line |= {f"{way}_loss": looks[-1][1], f"{way}_steps": num_steps}
    if set(found) == set(WAYS):
        times_s = {way: reached_s(looks, line["fp16_loss"]) for way, (looks, _) in found.items()}
        line["of_powersgd"] = line["stoker_loss"] / line["powersgd_loss"]
        line["gain_over_fp16"] = times_s["fp16"] / times_s["stoker"]
    print_line(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", default="100mbit", help="of a rank's link, as tc takes it")
    parser.add_argument("--budget-s", type=float, default=40.0, help="of training, each way")
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1000), help="drawn if not given"
    )
    parser.add_argument(
        "--power-start", type=int, default=POWER_START, help="fp32 steps before PowerSGD"
    )
    parser.add_argument("--ways", nargs="*", default=WAYS, choices=WAYS)
    parser.add_argument("--rank", help="be one of the ranks, trained in this way")
    flags = parser.parse_args()
    if flags.rank is None:
        lead(flags)
    else:
        rank(flags)
        leave()


if __name__ == "__main__":
    main()
