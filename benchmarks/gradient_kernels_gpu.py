"""What stoker's gradient kernels do on a GPU, beside the GPU's own copy of the same.

GB of float32 gradients a second, of 100M elements, by CUDA events, median of several; a GPU's caches
hold a tenth of them. Prints GB/s of each kernel and code, of the copy, and each as a multiple of it.
Not a plain script: it measures stoker's own module; there is one side only. Needs a CUDA device.
"""

import argparse
import statistics
from collections.abc import Callable

import torch
from one_side import GB, print_line

from stoker.gradients.blocks import cuda
from stoker.gradients.blocks.cpu import NEAREST
from stoker.gradients.blocks.layout import Segment, layout_of
from stoker.gradients.codes import Code

LENGTH = 100_000_000
NUM_RANKS = 4


def gb_per_s(action: Callable[[], object], num: int) -> float:
    action()  # compiled
    torch.cuda.synchronize()
    seconds = []
    for _ in range(num + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        action()
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) / 1000)
    return 4 * LENGTH / statistics.median(seconds[3:]) / GB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    flags = parser.parse_args()
    device = torch.device("cuda", 0)
    values = torch.randn(LENGTH, device=device, generator=torch.Generator(device).manual_seed(0))
    out, none = torch.zeros_like(values), torch.empty(0, device=device)
    copied = gb_per_s(lambda: out.copy_(values), flags.rounds)
    line = {"copy": copied}
    for code in Code:
        layout = layout_of([Segment(0, LENGTH, code)], NUM_RANKS)
        shards = [cuda.table_of(layout.shard(rank), device) for rank in range(NUM_RANKS)]
        messages = torch.zeros(NUM_RANKS, layout.message_nbytes, dtype=torch.uint8, device=device)
        own = torch.zeros(layout.message_nbytes, dtype=torch.uint8, device=device)

        def coded(shards=shards, messages=messages):
            for shard, message in zip(shards, messages, strict=True):
                cuda.quantise(values, shard, message, none, NEAREST)

        def read(shards=shards, messages=messages):
            for shard, message in zip(shards, messages, strict=True):
                cuda.dequantise(message, shard, out)

        def added(shards=shards, messages=messages, own=own):
            cuda.reduce(messages.ravel(), NUM_RANKS, shards[0], 4.0, own, NEAREST)

        for what, action in (("quantise", coded), ("dequantise", read), ("dequantise_add", added)):
            name = f"{what}_{code.name.lower()}"
            line[name] = gb_per_s(action, flags.rounds)
            line[f"{name}_of_copy"] = line[name] / copied
    print_line(line)


if __name__ == "__main__":
    main()
