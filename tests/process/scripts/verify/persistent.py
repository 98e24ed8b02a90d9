"""Equal: workers that live through several epochs and keep a count of their own."""

import torch
from torch.utils.data import DataLoader, Dataset


class Counting(Dataset):
    seen = 0

    def __len__(self):
        return 24

    def __getitem__(self, index):
        self.seen += 1
        return index, self.seen, torch.rand(2)


loader = DataLoader(Counting(), batch_size=4, shuffle=True, num_workers=2, persistent_workers=True)
for _ in range(4):
    for _ in loader:
        pass
