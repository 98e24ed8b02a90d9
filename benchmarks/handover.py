"""How fast finished batches reach the training loop: 38.5 MB each, nothing to compute.

64 resident 3x224x224 float32 samples through default_collate; `for batch in loader: pass`.
Prints batches_per_s. A plain script: it runs the same under python and under stoker.
"""

import torch
from one_side import measure_rate, print_line, rate_arguments
from torch.utils.data import DataLoader, Dataset

BATCH_SIZE = 64


class Resident(Dataset):
    """The same few samples again and again, so that memory is warm and fetching is free."""

    def __init__(self, num_batches: int = 100_000) -> None:
        self.samples = [torch.rand(3, 224, 224) for _ in range(BATCH_SIZE)]
        self.num_samples = num_batches * BATCH_SIZE

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.samples[index % BATCH_SIZE]


def make_loader(num_workers: int) -> DataLoader:
    return DataLoader(Resident(), batch_size=BATCH_SIZE, num_workers=num_workers)


if __name__ == "__main__":
    flags = rate_arguments(__doc__).parse_args()
    print_line(measure_rate(make_loader(flags.num_workers), flags))
