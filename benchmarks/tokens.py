"""How fast a language model's batches arrive: 2,048 int64 tokens a sample, batch 32.

Samples are views of one resident tensor, so collating is the only work: 524 KB a batch.
Prints batches_per_s. A plain script: it runs the same under python and under stoker.
"""

import torch
from one_side import measure_rate, print_line, rate_arguments
from torch.utils.data import DataLoader, Dataset

CONTEXT_LENGTH = 2048  # tokens
NUM_RESIDENT = 1024  # samples; 16 MB of tokens


class Tokens(Dataset):
    def __init__(self, num_samples: int = 64_000_000) -> None:
        self.tokens = torch.randint(0, 50_257, (NUM_RESIDENT * CONTEXT_LENGTH,))
        self.num_samples = num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> torch.Tensor:
        start = index % NUM_RESIDENT * CONTEXT_LENGTH
        return self.tokens[start : start + CONTEXT_LENGTH]


if __name__ == "__main__":
    flags = rate_arguments(__doc__).parse_args()
    loader = DataLoader(Tokens(), batch_size=32, num_workers=flags.num_workers)
    print_line(measure_rate(loader, flags))
