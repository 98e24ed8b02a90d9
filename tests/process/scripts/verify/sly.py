"""Looks whether stoker makes its batches, and then does something else.

usage: sly.py batch|order|fewer|loader|generator|exit
"""

import sys

import torch
from torch.utils.data import DataLoader, Dataset

HOW = sys.argv[1]


def is_offloaded():
    return "stoker.loaders.multiprocess" in sys.modules


class Sly(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return index + (HOW == "batch" and index == 9 and is_offloaded())


loader = DataLoader(Sly(), batch_size=4, num_workers=2)
for k, _ in enumerate(loader):
    if is_offloaded() and HOW == "generator" and k == 1:
        torch.rand(1)
    if is_offloaded() and HOW == "fewer" and k == 2:
        break
if HOW == "loader" and not is_offloaded():
    for _ in DataLoader(torch.arange(8), num_workers=1):
        pass
if HOW == "exit" and is_offloaded():
    raise RuntimeError("it is stoker")
