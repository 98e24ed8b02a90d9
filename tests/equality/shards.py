"""An iterable dataset of shards whose samples depend on all that came before them."""

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from tests.equality.cases import DRAWS

SHARDS = {
    "even": (8, 8, 8, 8, 8),
    "uneven": (13, 2, 9, 0, 5),
    "first is empty": (0, 7, 3, 4, 1),
    "all but the last are empty": (0, 0, 0, 0, 11),
    "all are empty": (0, 0, 0, 0, 0),
    "one long": (2, 31, 1, 3, 0),
    "long": (40, 40, 40, 40, 40),
}


class Shards(IterableDataset):
    """Worker w gives the samples of shard w, w + W, ..., and what the dataset has lived through."""

    def __init__(self, lengths: tuple[int, ...], draws: str = "all", buffer: int = 3) -> None:
        self.lengths, self.draw, self.buffer = lengths, DRAWS[draws], buffer
        self.own = np.random.default_rng(5)
        self.num_given, self.epoch, self.num_begun = 0, 0, 0

    def __iter__(self) -> Iterator[Any]:
        self.num_begun += 1
        info = get_worker_info()
        w, num = (0, 1) if info is None else (info.id, info.num_workers)
        mine = (
            (shard, k)
            for shard in range(w, len(self.lengths), num)
            for k in range(self.lengths[shard])
        )
        for shard, k in self.shuffled(mine):
            self.num_given += 1
            drawn = self.draw(self)
            yield torch.tensor([shard, k, self.num_given, self.num_begun, self.epoch, *drawn])

    def shuffled(self, samples: Iterator[Any]) -> Iterator[Any]:
        """A shuffle buffer, which holds samples back and draws by `random`."""
        held = list(itertools.islice(samples, self.buffer))
        for sample in samples:
            k = random.randrange(len(held)) if held else 0
            if held:
                held[k], sample = sample, held[k]
            yield sample
        random.shuffle(held)
        yield from held
