"""How fast torchdata's StatefulDataLoader is with a snapshot at every batch.

32 samples of 16,384 float32 a batch, 2.1 MB, and a dataset that tells a state of its own: what a
snapshot costs is part of each batch. `loader.state_dict()` is asked for after every one.
Prints batches_per_s. A plain script: it runs the same under python and under stoker.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import torch
from one_side import measure_rate, print_line, rate_arguments
from torch.utils.data import Dataset
from torchdata.stateful_dataloader import StatefulDataLoader

NUM_RESIDENT = 256  # samples; 16 MB
SAMPLE_LENGTH = 16_384  # float32


class Telling(Dataset):
    """Tells how many samples it gave, and where its own generator is."""

    def __init__(self, num_samples: int = 64_000_000) -> None:
        self.samples = torch.rand(NUM_RESIDENT, SAMPLE_LENGTH)
        self.num_samples, self.num_given = num_samples, 0
        self.generator = torch.Generator().manual_seed(1)

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> torch.Tensor:
        self.num_given += 1
        return self.samples[index % NUM_RESIDENT]

    def state_dict(self) -> dict[str, Any]:
        return {"num_given": self.num_given, "generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.num_given = state["num_given"]
        self.generator.set_state(state["generator"])


class Saving:
    """A loop that asks for the state after every batch, as one that saves it now and then could."""

    def __init__(self, loader: StatefulDataLoader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[torch.Tensor]:
        for batch in self.loader:
            self.loader.state_dict()
            yield batch


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "'set_vital' is deprecated")  # torchdata 0.11, torch 2.13
    flags = rate_arguments(__doc__).parse_args()
    loader = StatefulDataLoader(
        Telling(), batch_size=32, num_workers=flags.num_workers, snapshot_every_n_steps=1
    )
    print_line(measure_rate(Saving(loader), flags))
