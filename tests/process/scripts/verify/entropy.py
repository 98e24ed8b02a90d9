"""Impure: the collate function takes its noise from the system."""

import os as system

from torch.utils.data import DataLoader


def salted(samples):
    return [(sample, system.urandom(4)) for sample in samples]


for _ in DataLoader(range(16), batch_size=4, collate_fn=salted, num_workers=2):
    pass
