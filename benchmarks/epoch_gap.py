"""How long the training loop stands still between two epochs.

From the last batch of an epoch to the first of the next: workers end, the sampler draws 1.28
million indices, workers start anew (not persistent) and make a batch. Prints gap_ms, a median,
and draw_ms, what torch's sampler takes of it: torch.randperm and tolist().
A plain script: it runs the same under python and under stoker.
"""

import argparse
import itertools
import statistics
import time

import torch
from big_list import make_loader
from one_side import print_line


def arrivals_s(loader) -> tuple[float, float]:
    """When the first and the last batch of one epoch arrived."""
    first_s = last_s = None
    for _ in loader:
        last_s = time.perf_counter()
        first_s = first_s or last_s
    return first_s, last_s


def draw_ms(num_samples: int) -> float:
    start_s = time.perf_counter()
    torch.randperm(num_samples).tolist()
    return 1000 * (time.perf_counter() - start_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-workers", type=int, default=2, metavar="W")
    parser.add_argument("--num-gaps", type=int, default=3)
    flags = parser.parse_args()
    loader = make_loader(flags.num_workers)
    epochs = [arrivals_s(loader) for _ in range(flags.num_gaps + 1)]
    pairs = itertools.pairwise(epochs)
    gaps_ms = [1000 * (later[0] - earlier[1]) for earlier, later in pairs]
    epoch_s = statistics.median(last_s - first_s for first_s, last_s in epochs)
    figures = {"gap_ms": statistics.median(gaps_ms), "gaps_ms": gaps_ms, "epoch_s": epoch_s}
    print_line({**figures, "draw_ms": draw_ms(len(loader.dataset))})


if __name__ == "__main__":
    main()
