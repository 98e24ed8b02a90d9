"""Equal: sequences of different lengths, padded by a collate function of the script's."""

import random

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader


def collate(samples):
    random.shuffle(samples)
    lengths = [len(sample) for sample in samples]
    return pad_sequence(samples, batch_first=True), lengths, {"longest": max(lengths)}


samples = [torch.arange(3 + 7 * k % 11) for k in range(40)]
for _ in range(2):
    for _ in DataLoader(samples, batch_size=5, collate_fn=collate, num_workers=2):
        pass
