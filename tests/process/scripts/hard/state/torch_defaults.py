"""Default dtype, threads, determinism, print options and default device change between epochs."""

import torch
from torch.utils.data import DataLoader, Dataset


class Asks(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        flags = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
        return torch.tensor(1.5).dtype, flags, torch.is_grad_enabled(), repr(torch.tensor(1 / 3))


def collate(samples):
    return samples, torch.tensor([1.0, 2.0]).dtype


before = torch.get_num_threads()
for change in (
    lambda: None,
    lambda: torch.set_default_dtype(torch.float64),
    lambda: torch.set_num_threads(2),
    lambda: torch.use_deterministic_algorithms(True),
    lambda: torch.set_printoptions(precision=2),
    lambda: torch.set_grad_enabled(False),
):
    change()
    for workers in (0, 1):
        print(list(DataLoader(Asks(), 2, num_workers=workers, collate_fn=collate)))
    print([b.dtype for b in DataLoader([0.5, 1.5], 1, num_workers=1)], torch.get_num_threads())
