"""Equal: a sample draws from all three generators, and nothing is seeded by the script."""

import random

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Crops(Dataset):
    def __len__(self):
        return 48

    def __getitem__(self, index):
        left = random.randrange(8)
        noise = np.random.normal(size=3)
        return {"crop": torch.rand(4, 4) + left, "noise": noise, "index": index}


loader = DataLoader(Crops(), batch_size=4, shuffle=True, num_workers=2)
for _ in range(2):
    for batch in loader:
        torch.dropout(batch["crop"], 0.5, train=True)  # the loop draws too
