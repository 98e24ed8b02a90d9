"""Trains a small DistributedDataParallel for ever, or does something that cannot be measured.

usage: probed.py [WHAT]; under torchrun, but for `alone`.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

what = "".join(sys.argv[1:])
torch.set_num_threads(1)
if what != "alone":
    dist.init_process_group("gloo")
if what == "fails" and dist.get_rank() == 1:
    raise RuntimeError("this rank fails")
net = torch.nn.Sequential(*[torch.nn.Linear(200, 200) for _ in range(8)])
model = net if what == "alone" else DistributedDataParallel(net, bucket_cap_mb=0.3)
if what == "hook":
    model.register_comm_hook(None, fp16_compress_hook)
if what == "two":  # the first is measured; of the second nobody has to know
    other = DistributedDataParallel(torch.nn.Linear(4, 4))
    other.register_comm_hook(None, fp16_compress_hook)
optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    for (x,) in DataLoader(TensorDataset(torch.randn(640, 200)), 32, num_workers=1):
        model(x).pow(2).mean().backward()
        optimiser.step()
        optimiser.zero_grad()
        if what == "short":
            sys.exit()
    if what == "alone":
        os.write(int(os.environ["TELL_FD"]), b"epoch\n")
