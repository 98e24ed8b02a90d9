"""How fast a language model's text arrives: text shards, tokenised and packed by an IterableDataset.

Each worker reads its share of the shards line by line, splits words, looks them up and packs
their numbers to samples of 1,024 tokens; batch 32. Prints batches_per_s.
A plain script: it runs the same under python and under stoker.
"""

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import torch
from made_data import made_once
from one_side import measure_rate, print_line, rate_arguments
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

CONTEXT_LENGTH = 1024  # tokens
BATCH_SIZE = 32
NUM_SHARDS = 8
NUM_LINES = 20_000  # of a shard, 12 words each: 2 MB
NUM_WORDS = 30_000


def words() -> list[str]:
    draw = random.Random(0)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    return ["".join(draw.choices(letters, k=draw.randint(2, 9))) for _ in range(NUM_WORDS)]


def write_shards(folder: Path) -> None:
    """Words as rare as in a language: the k-th most frequent one comes 1/k as often."""
    draw, known = random.Random(1), words()
    weights = list(itertools.accumulate(1 / k for k in range(1, NUM_WORDS + 1)))
    for shard in range(NUM_SHARDS):
        lines = (" ".join(draw.choices(known, cum_weights=weights, k=12)) for _ in range(NUM_LINES))
        (folder / f"shard-{shard}.txt").write_text("\n".join(lines) + "\n")


def shard_folder() -> Path:
    return made_once(f"text-{NUM_SHARDS}x{NUM_LINES}", write_shards)


class PackedText(IterableDataset):
    """Endless: a worker's shards over and over, as in pretraining."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*.txt"))
        self.number_of = {word: number for number, word in enumerate(words(), start=1)}

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        mine = self.files[info.id :: info.num_workers] if info else self.files
        packed: list[int] = []
        for file in itertools.cycle(mine):
            with file.open() as lines:
                for line in lines:
                    packed += [self.number_of.get(word, 0) for word in line.split()]
                    packed.append(0)  # end of line
                    while len(packed) >= CONTEXT_LENGTH:
                        yield torch.tensor(packed[:CONTEXT_LENGTH])
                        del packed[:CONTEXT_LENGTH]


if __name__ == "__main__":
    flags = rate_arguments(__doc__).parse_args()
    loader = DataLoader(PackedText(shard_folder()), BATCH_SIZE, num_workers=flags.num_workers)
    print_line(measure_rate(loader, flags))
