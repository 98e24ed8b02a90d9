"""Two iterators of one loader at once, and one more inside the loop of the first."""

import torch
from torch.utils.data import DataLoader

for workers in (0, 1, 2):
    loader = DataLoader(range(6), 2, shuffle=True, num_workers=workers)
    torch.manual_seed(workers)
    one, other = iter(loader), iter(loader)
    print([(a.tolist(), b.tolist()) for a, b in zip(one, other, strict=True)])
    print([(a.tolist(), b.tolist()) for a in loader for b in loader])
    print(torch.rand(1).item())
