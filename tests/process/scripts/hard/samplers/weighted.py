"""Weighted and random-subset samplers share one generator with the loader itself."""

import torch
from torch.utils.data import DataLoader, SubsetRandomSampler, WeightedRandomSampler, random_split

generator = torch.Generator().manual_seed(7)
weighted = WeightedRandomSampler([0.1, 5, 1, 1, 3], 7, generator=generator)
subset = SubsetRandomSampler([4, 2, 0], generator=generator)
parts = random_split(range(10), [0.5, 0.5], generator=generator)
for workers in (0, 2):
    for sampler, data in ((weighted, range(5)), (subset, range(5)), (None, parts[0])):
        loader = DataLoader(
            data,
            2,
            sampler=sampler,
            shuffle=sampler is None or None,
            num_workers=workers,
            generator=generator,
        )
        print([b.tolist() for b in loader], hash(bytes(generator.get_state().tolist())))
print(torch.rand(1).item(), torch.initial_seed())
