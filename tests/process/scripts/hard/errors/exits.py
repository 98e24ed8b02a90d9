"""A sample calls sys.exit(), which ends its worker; or raises KeyboardInterrupt there."""

import sys

from torch.utils.data import DataLoader, Dataset


class Exits(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        if index == 3:
            sys.exit(7)
        return index


try:
    print([b.tolist() for b in DataLoader(Exits(), 2)])
except SystemExit as error:
    print("exit", error.code)
try:
    for batch in DataLoader(Exits(), 1, num_workers=1):
        assert batch.item() < 3
    print("went through")
except (RuntimeError, OSError, EOFError):  # torch finds one of these first
    print("failed")
