"""How fast finished batches reach the training loop: 38.5 MB each, next to nothing to compute.

--work stack: 64 resident 3x224x224 float32 samples through default_collate; clone: the dataset
allocates whole batches itself, with batch_size=None. `for batch in loader: pass`.
Prints batches_per_s. A plain script: it runs the same under python and under stoker.
"""

import torch
from one_side import measure_rate, print_line, rate_arguments
from torch.utils.data import DataLoader, Dataset

BATCH_SIZE = 64
SAMPLE_SIZE = (3, 224, 224)


class Resident(Dataset):
    """The same few samples again and again, so that memory is warm and fetching is free."""

    def __init__(self, num_batches: int = 100_000) -> None:
        self.samples = [torch.rand(SAMPLE_SIZE) for _ in range(BATCH_SIZE)]
        self.num_samples = num_batches * BATCH_SIZE

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.samples[index % BATCH_SIZE]


class Cloned(Dataset):
    """One resident batch, copied by the dataset: what a decoder that gives whole clips would do."""

    def __init__(self, num_batches: int = 100_000) -> None:
        self.batch = torch.rand(BATCH_SIZE, *SAMPLE_SIZE)
        self.num_batches = num_batches

    def __len__(self) -> int:
        return self.num_batches

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.batch.clone()


def make_loader(num_workers: int, work: str = "stack") -> DataLoader:
    if work == "clone":
        return DataLoader(Cloned(), batch_size=None, num_workers=num_workers)
    return DataLoader(Resident(), batch_size=BATCH_SIZE, num_workers=num_workers)


if __name__ == "__main__":
    parser = rate_arguments(__doc__)
    parser.add_argument("--work", choices=("stack", "clone"), default="stack")
    flags = parser.parse_args()
    print_line(measure_rate(make_loader(flags.num_workers, flags.work), flags))
