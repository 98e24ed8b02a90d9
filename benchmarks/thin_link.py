"""Batches of normalised photographs over 1 Gbit/s, coded and as they are.

The batches of images.py, decoded before, so that the link is the limit and not these two cores;
two workers behind a veth pair that tc holds to 1 Gbit/s, TLS on, as off loopback it is. In turn,
both warmed. Prints batches_per_s of both and `gain`, the median of their ratios.
Not a plain script: plain torch has nothing like it; there is one side only.
"""

import argparse
import statistics
import time
from itertools import islice

import torch
from behind_link import fleet, link, stoker_with, wait_away
from images import make_loader
from one_side import num_usable_cores, print_line
from torch.utils.data import DataLoader, Dataset

NUM_HOSTS = 2
RATE = "1gbit"
NUM_BATCHES = 2  # distinct ones


class Decoded(Dataset):
    """Whole batches, given as they are."""

    def __init__(self, batches: list[torch.Tensor]) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.batches[index % len(self.batches)].clone()


def photographs() -> list[torch.Tensor]:
    loader = make_loader(num_usable_cores(), num_rounds=1)
    return [images.clone() for images, _ in islice(loader, NUM_BATCHES)]


class Side:
    """One loader whose batches come over the link. Warm from the second measurement on."""

    def __init__(self, made, batches: list[torch.Tensor]) -> None:
        with stoker_with(made):
            loader = DataLoader(Decoded(batches), batch_size=None, num_workers=NUM_HOSTS)
            self.iterator = iter(loader)
            wait_away(self.iterator, NUM_HOSTS)
        first = next(self.iterator)
        assert torch.equal(first.view(torch.int32), batches[0].view(torch.int32))
        for _ in range(4 * NUM_HOSTS):
            next(self.iterator)

    def measure(self, seconds: float) -> float:
        """Batches a second; what waits from before is left out."""
        for _ in range(3 * NUM_HOSTS):
            next(self.iterator)
        start_s, num = time.perf_counter(), 0
        while time.perf_counter() - start_s < seconds:
            next(self.iterator)
            num += 1
        return num / (time.perf_counter() - start_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    flags = parser.parse_args()
    batches = photographs()
    found: list[tuple[float, float]] = []
    with (
        link(RATE),
        fleet(NUM_HOSTS) as coded_fleet,
        fleet(NUM_HOSTS, has_codec=False) as raw_fleet,
    ):
        coded, raw = Side(coded_fleet, batches), Side(raw_fleet, batches)
        for _ in range(flags.rounds):
            found.append((coded.measure(flags.seconds), raw.measure(flags.seconds)))
        del coded, raw
    print_line(
        {
            "coded_batches_per_s": statistics.median(ours for ours, _ in found),
            "raw_batches_per_s": statistics.median(theirs for _, theirs in found),
            "gain": statistics.median(ours / theirs for ours, theirs in found),
        }
    )


if __name__ == "__main__":
    main()
