"""os.fork(), and the child iterates the loader, while the parent does too."""

import os

import torch
from torch.utils.data import DataLoader

torch.manual_seed(0)
for workers in (0, 2):
    loader = DataLoader(range(8), 2, shuffle=True, num_workers=workers)
    print([b.tolist() for b in loader], flush=True)
    pid = os.fork()
    if not pid:
        print("child", [b.tolist() for b in loader], torch.rand(1).item(), flush=True)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    print("parent", [b.tolist() for b in loader], torch.rand(1).item(), flush=True)
