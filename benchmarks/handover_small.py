"""What one hand-over costs when the batch is next to nothing: 10 KB each.

--work stack: 4 resident samples of 640 float32 through default_collate; single: one of 2,560 with
batch_size=None. `for batch in loader: pass`.
Prints batches_per_s. A plain script: it runs the same under python and under stoker.
"""

import torch
from one_side import measure_rate, print_line, rate_arguments
from torch.utils.data import DataLoader, Dataset

BATCH_SIZE = 4


class Small(Dataset):
    def __init__(self, num_values: int, num_samples: int = 40_000_000) -> None:
        self.samples = [torch.rand(num_values) for _ in range(64)]
        self.num_samples = num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.samples[index % 64]


def make_loader(num_workers: int, work: str) -> DataLoader:
    if work == "single":
        return DataLoader(Small(2560), batch_size=None, num_workers=num_workers)
    return DataLoader(Small(640), batch_size=BATCH_SIZE, num_workers=num_workers)


if __name__ == "__main__":
    parser = rate_arguments(__doc__)
    parser.add_argument("--work", choices=("stack", "single"), default="stack")
    flags = parser.parse_args()
    print_line(measure_rate(make_loader(flags.num_workers, flags.work), flags))
