"""Non-contiguous and overlapping tensors, and arrays with negative strides, keep their layout."""

import numpy as np
import torch
from torch.utils.data import DataLoader


def collate(samples):
    x = torch.arange(24.0).view(2, 3, 4) + samples[0]
    return [
        x.transpose(0, 2),
        x[:, ::2],
        x.expand(2, 2, 3, 4),
        x[1:, 1:],
        x.as_strided((3, 3), (1, 1)),
    ]


def arrays(samples):
    x = np.arange(12).reshape(3, 4) + samples[0]
    return [x[::-1], x[:, ::-2], np.asfortranarray(x), x.T, np.broadcast_to(x, (2, 3, 4))]


for workers in (0, 2):
    for batch in DataLoader(range(4), 2, num_workers=workers, collate_fn=collate):
        print([(tuple(x.shape), x.stride(), x.storage_offset(), x.sum().item()) for x in batch])
    for batch in DataLoader(range(2), 1, num_workers=workers, collate_fn=arrays):
        print([(x.tolist(), x.flags.c_contiguous, x.flags.writeable) for x in batch])
