"""100 MB of gradients averaged over four ranks, each behind a link that tc holds.

In turn, each warmed: fp32 by DDP's all-reduce, fp16 as torch's fp16_compress_hook does it, and
stoker's 4-bit exchange, of four buckets of 25 MB that are all given at once. Every rank is a process
in a network namespace of its own. Prints seconds of each, and the medians of both ratios.
Not a plain script: it measures stoker's own module beside torch's; there is one side only.
"""

import argparse
import datetime
import statistics
import sys
import time

import torch
import torch.distributed as dist
from one_side import print_line
from ranks import leave, links, start

NUM_RANKS = 4
NUM_BUCKETS = 4
BUCKET_LEN = 6_250_000
PATIENCE = datetime.timedelta(seconds=600)


class Sides:
    """Each averages the same buckets; returns when all have come."""

    def __init__(self) -> None:
        from torch.distributed.distributed_c10d import _get_default_store

        from stoker.gradients.codes import Code
        from stoker.gradients.exchange import Exchange
        from stoker.gradients.filters import Coding

        self.size = dist.get_world_size()
        self.buckets = [torch.empty(BUCKET_LEN) for _ in range(NUM_BUCKETS)]
        self.halves = [torch.empty(BUCKET_LEN, dtype=torch.float16) for _ in range(NUM_BUCKETS)]
        one = [torch.nn.Parameter(torch.empty(BUCKET_LEN, device="meta"))]
        self.parameters = [one] + [[torch.nn.Parameter(one[0].clone())] for _ in range(3)]
        store = dist.PrefixStore("bench", _get_default_store())
        self.exchange = Exchange(
            dist.ProcessGroupGloo(store, dist.get_rank(), self.size, PATIENCE),
            Coding({id(each): Code.INT4 for (each,) in self.parameters}),
        )

    def fp32(self) -> None:
        for bucket in self.buckets:
            bucket.div_(self.size)
        works = [dist.all_reduce(bucket, async_op=True) for bucket in self.buckets]
        for work in works:
            work.wait()

    def fp16(self) -> None:
        works = []
        for bucket, half in zip(self.buckets, self.halves, strict=True):
            works.append(dist.all_reduce(half.copy_(bucket).div_(self.size), async_op=True))
        for work, bucket, half in zip(works, self.buckets, self.halves, strict=True):
            work.wait()
            bucket.copy_(half)

    def int4(self) -> None:
        pairs = zip(self.parameters, self.buckets, strict=True)
        futures = [
            self.exchange.exchange(*pair, is_first=not number) for number, pair in enumerate(pairs)
        ]
        for future in futures:
            future.wait()


def rank(num_rounds: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=PATIENCE)
    sides = Sides()
    found: dict[str, list[float]] = {"fp32": [], "fp16": [], "int4": []}
    for round_number in range(num_rounds + 1):  # the first is not counted
        for name, seconds in found.items():
            for bucket in sides.buckets:
                bucket.normal_()
            dist.barrier()
            begin_s = time.perf_counter()
            getattr(sides, name)()
            dist.barrier()
            if round_number:
                seconds.append(time.perf_counter() - begin_s)
    sides.exchange.close()
    if dist.get_rank() == 0:
        medians = {f"{name}_s": statistics.median(seconds) for name, seconds in found.items()}
        gains = {
            f"gain_over_{name}": statistics.median(
                theirs / ours for theirs, ours in zip(found[name], found["int4"], strict=True)
            )
            for name in ("fp32", "fp16")
        }
        print_line(medians | gains)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", default="1gbit", help="of a rank's link, as tc takes it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rank", action="store_true", help="be one of the ranks")
    flags = parser.parse_args()
    if flags.rank:
        rank(flags.rounds)
        return leave()
    with links(NUM_RANKS, flags.rate):
        ranks = start(NUM_RANKS, [__file__, "--rank", "--rounds", str(flags.rounds)])
        for process in ranks:
            sys.stdout.write(process.communicate()[0])
    return sys.exit(max(process.returncode for process in ranks))


if __name__ == "__main__":
    main()
