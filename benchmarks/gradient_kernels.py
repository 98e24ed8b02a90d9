"""What stoker's gradient kernels do on one core, beside the machine's own copy.

GB of float32 gradients for each second of CPU time, of 25M elements in memory that was used before.
In turn with np.copyto of the same. Prints GB/s of each kernel and code, and of the copy.
Not a plain script: it measures stoker's own module; there is one side only.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
from one_side import GB, print_line

from stoker.gradients.blocks.cpu import NEAREST, dequantise, quantise, reduce
from stoker.gradients.blocks.layout import Segment, layout_of
from stoker.gradients.codes import Code

LENGTH = 25_000_000
NUM_RANKS = 4


def gb_per_s(action: Callable[[], object], num: int) -> float:
    seconds = []
    for _ in range(num + 1):
        begin_s = time.thread_time()
        action()
        seconds.append(time.thread_time() - begin_s)
    return 4 * LENGTH / statistics.median(seconds[1:]) / GB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    flags = parser.parse_args()
    values = np.random.default_rng(0).standard_normal(LENGTH).astype(np.float32)
    out, none = np.zeros_like(values), np.empty(0, np.float32)
    line = {"copy": gb_per_s(lambda: np.copyto(out, values), flags.rounds)}
    for code in Code:
        layout = layout_of([Segment(0, LENGTH, code)], NUM_RANKS)
        shards = [layout.shard(rank) for rank in range(NUM_RANKS)]
        messages = np.zeros((NUM_RANKS, layout.message_nbytes), np.uint8)
        own = np.zeros(layout.message_nbytes, np.uint8)

        def coded(seed=NEAREST, shards=shards, messages=messages):
            for shard, message in zip(shards, messages, strict=True):
                quantise(values, shard, message, none, seed)

        def read(shards=shards, messages=messages):
            for shard, message in zip(shards, messages, strict=True):
                dequantise(message, shard, out)

        def added(shards=shards, messages=messages, own=own):
            reduce(messages.ravel(), NUM_RANKS, shards[0], np.float32(4), own, NEAREST)

        name = code.name.lower()
        line[f"quantise_{name}"] = gb_per_s(coded, flags.rounds)
        line[f"quantise_stochastic_{name}"] = gb_per_s(
            lambda coded=coded: coded(np.uint64(7)), flags.rounds
        )
        line[f"dequantise_{name}"] = gb_per_s(read, flags.rounds)
        line[f"dequantise_add_{name}"] = gb_per_s(added, flags.rounds)
    print_line(line)


if __name__ == "__main__":
    main()
