"""Equal: two loaders in turn, and a third that holds both of them up."""

import torch
from torch.utils.data import DataLoader, TensorDataset


def loader(num_samples, **kwargs):
    dataset = TensorDataset(torch.arange(num_samples), torch.randn(num_samples, 5))
    return DataLoader(dataset, batch_size=4, **kwargs)


train = loader(32, shuffle=True, num_workers=2)
val = loader(12, num_workers=1)
for _ in range(3):
    for _ in train:
        pass
    for _ in val:
        pass
for _ in zip(train, val, strict=False):
    pass
