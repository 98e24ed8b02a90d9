"""None stands inside tuples, dicts and lists of what a collate function gives."""

import torch
from torch.utils.data import DataLoader


def collate(samples):
    return {"x": torch.tensor(samples), "mask": None, "more": [None, (None, samples[0])]}


for workers in (0, 2):
    for batch in DataLoader(range(5), 2, num_workers=workers, collate_fn=collate):
        print(batch)
