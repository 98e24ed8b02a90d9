"""How fast a language model's batches arrive: 2,048 int64 tokens a sample, batch 32.

--work view: samples are views of one resident tensor, so collating is the only work: 524 KB a
batch; astype: the tokens are kept as uint16 and each sample is a new array, as in most such scripts.
Prints batches_per_s. A plain script: it runs the same under python and under stoker.
"""

import numpy as np
import torch
from one_side import measure_rate, print_line, rate_arguments
from torch.utils.data import DataLoader, Dataset

CONTEXT_LENGTH = 2048  # tokens
NUM_RESIDENT = 1024  # samples; 16 MB of tokens
BATCH_SIZE = 32


class Tokens(Dataset):
    def __init__(self, num_samples: int = 64_000_000) -> None:
        self.tokens = torch.randint(0, 50_257, (NUM_RESIDENT * CONTEXT_LENGTH,))
        self.num_samples = num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> torch.Tensor:
        start = index % NUM_RESIDENT * CONTEXT_LENGTH
        return self.tokens[start : start + CONTEXT_LENGTH]


class Cast(Tokens):
    def __init__(self, num_samples: int = 64_000_000) -> None:
        super().__init__(num_samples)
        self.short = self.tokens.numpy().astype(np.uint16)

    def __getitem__(self, index: int) -> torch.Tensor:
        start = index % NUM_RESIDENT * CONTEXT_LENGTH
        return torch.from_numpy(self.short[start : start + CONTEXT_LENGTH].astype(np.int64))


def make_dataset(work: str) -> Dataset:
    return Cast() if work == "astype" else Tokens()


if __name__ == "__main__":
    parser = rate_arguments(__doc__)
    parser.add_argument("--work", choices=("view", "astype"), default="view")
    flags = parser.parse_args()
    dataset = make_dataset(flags.work)
    loader = DataLoader(dataset, batch_size=BATCH_SIZE, num_workers=flags.num_workers)
    print_line(measure_rate(loader, flags))
