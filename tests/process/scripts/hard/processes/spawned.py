"""Workers are spawned: classes of `__main__` are found again in a fresh interpreter."""

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Squares(Dataset):
    def __init__(self, num):
        self.num = num

    def __len__(self):
        return self.num

    def __getitem__(self, index):
        return index**2, torch.rand(()).item(), get_worker_info().id


def double(samples):
    return [tuple(2 * x for x in sample) for sample in samples]


if __name__ == "__main__":
    torch.manual_seed(1)
    print(
        list(
            DataLoader(
                Squares(4), 2, num_workers=1, multiprocessing_context="spawn", collate_fn=double
            )
        )
    )
    print(torch.rand(1).item())
