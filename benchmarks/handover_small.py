"""What one hand-over costs when the batch is next to nothing: 10 KB each.

4 resident samples of 640 float32 through default_collate; `for batch in loader: pass`.
Prints batches_per_s. A plain script: it runs the same under python and under stoker.
"""

import torch
from one_side import measure_rate, print_line, rate_arguments
from torch.utils.data import DataLoader, Dataset

BATCH_SIZE = 4


class Small(Dataset):
    def __init__(self, num_batches: int = 10_000_000) -> None:
        self.samples = [torch.rand(640) for _ in range(64)]
        self.num_samples = num_batches * BATCH_SIZE

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.samples[index % 64]


if __name__ == "__main__":
    flags = rate_arguments(__doc__).parse_args()
    loader = DataLoader(Small(), batch_size=BATCH_SIZE, num_workers=flags.num_workers)
    print_line(measure_rate(loader, flags))
