"""All batches of three epochs are kept, and only then looked at; then half are dropped and made anew."""

import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.arange(8 * 20_000).view(8, 20_000))
for workers in (0, 2):
    loader = DataLoader(
        data, 2, num_workers=workers, shuffle=True, generator=torch.Generator().manual_seed(1)
    )
    kept = [x for _ in range(3) for (x,) in loader]
    print([x[:, 0].tolist() for x in kept])
    del kept[::2]
    kept += [x for (x,) in loader]
    print([x.sum().item() for x in kept])
