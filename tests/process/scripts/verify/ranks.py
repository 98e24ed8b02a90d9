"""Equal: a part of the data for each rank, as under torchrun, and a child that has a loader too."""

import os
import subprocess
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

rank = int(os.environ["RANK"])
sampler = DistributedSampler(TensorDataset(torch.arange(50)), num_replicas=2, rank=rank)
loader = DataLoader(sampler.dataset, batch_size=4, sampler=sampler, num_workers=2)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for _ in loader:
        pass
if rank == 0:
    script = Path(__file__).with_name("broken_off.py")
    subprocess.run([sys.executable, script], check=True)
