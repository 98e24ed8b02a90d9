"""Tokens in a mapped file, windows at random places, two workers, a bar of tqdm."""

import tempfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm

WINDOW = 1024


class Windows(Dataset):
    def __init__(self, name):
        self.tokens = np.memmap(name, np.uint16, "r")

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        start = (index * 7919) % (len(self.tokens) - WINDOW - 1)
        window = torch.from_numpy(self.tokens[start : start + WINDOW + 1].astype(np.int64))
        return window[:-1], window[1:]


if __name__ == "__main__":
    torch.manual_seed(0)
    folder = tempfile.TemporaryDirectory()
    file = f"{folder.name}/tokens.bin"
    np.random.default_rng(0).integers(0, 50_000, 4_000_000, np.uint16).tofile(file)
    model = nn.Embedding(50_000, 4)
    loader = DataLoader(Windows(file), 64, shuffle=True, num_workers=2)
    total = 0
    for x, y in tqdm(loader, "steps"):
        total += int(model(x[:, :8]).argmax(-1).sum()) + int(y[0, 0])
    print(f"checksum {total}")
