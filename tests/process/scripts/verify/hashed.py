"""Equal: weights from the hash of strings, classes in the order of a set: PYTHONHASHSEED's work."""

import torch
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

NAMES = [f"class-{k % 7}" for k in range(60)]
NUMBERS = {name: number for number, name in enumerate(set(NAMES))}

weights = [1 + hash(name) % 5 for name in NAMES]
dataset = TensorDataset(torch.tensor([NUMBERS[name] for name in NAMES]), torch.arange(60))
sampler = WeightedRandomSampler(weights, num_samples=40)
for _ in range(2):
    for _ in DataLoader(dataset, batch_size=4, sampler=sampler, num_workers=2):
        pass
