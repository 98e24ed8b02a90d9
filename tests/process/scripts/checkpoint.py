"""Breaks off after argv[2] batches and saves the loader's state to argv[1], or goes on from it.

Imports torchdata before torch, and prints every batch.
"""

import sys
from pathlib import Path

from torchdata.stateful_dataloader import StatefulDataLoader  # isort: skip
import torch

file, num_batches = Path(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(7)
loader = StatefulDataLoader(
    [torch.tensor(float(k)) for k in range(24)], batch_size=2, shuffle=True, num_workers=2
)
if file.exists():
    loader.load_state_dict(torch.load(file, weights_only=False))
for number, batch in enumerate(loader, 1):
    print(batch.tolist(), flush=True)
    if number == num_batches:
        torch.save(loader.state_dict(), file)
        break
