"""The loop breaks after the first batch, again and again, and once goes through."""

import torch
from torch.utils.data import DataLoader

torch.manual_seed(0)
for workers, persistent in ((0, False), (2, False), (2, True)):
    loader = DataLoader(
        range(20), 2, shuffle=True, num_workers=workers, persistent_workers=persistent
    )
    for _ in range(5):
        for batch in loader:
            print(batch.tolist(), end=" ")
            break
    print([b.tolist() for b in loader], torch.rand(1).item())
