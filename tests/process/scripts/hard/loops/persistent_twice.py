"""iter() of a loader with persistent workers, again in mid-epoch: both names are one iterator."""

import torch
from torch.utils.data import DataLoader

torch.manual_seed(0)
loader = DataLoader(range(12), 2, shuffle=True, num_workers=2, persistent_workers=True)
one = iter(loader)
print(next(one).tolist(), next(one).tolist())
other = iter(loader)
print(one is other, [b.tolist() for b in one], [b.tolist() for b in other])
print([b.tolist() for b in loader], torch.rand(1).item())
