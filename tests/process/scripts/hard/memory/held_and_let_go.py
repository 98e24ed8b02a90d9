"""Views of batches are held while the batches go: one row of each, a label, an array's view."""

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.arange(24 * 9000.0).view(24, 9000), torch.arange(24))
for workers in (0, 2):
    rows, labels, arrays = [], [], []
    for _ in range(3):
        for x, y in DataLoader(data, 2, num_workers=workers):
            rows.append(x[1, 5:9])
            labels.append(y[:1])
            arrays.append(np.asarray(x)[0, ::4000])
        print(
            sum(r.sum().item() for r in rows),
            sum(int(y) for y in labels),
            sum(a.sum() for a in arrays),
        )
        del rows[::2], arrays[1::2]
