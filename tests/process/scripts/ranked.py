"""Two ranks that share a data set, however they are started.

usage: ranked.py launcher          under torchrun: RANK and WORLD_SIZE are given
       ranked.py spawn FILE        torch.multiprocessing.spawn; FILE is where the ranks meet
       ranked.py lonely FILE       rank 1 is a process that a launcher without stoker has started
"""

import os
import random
import subprocess
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Noise(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return index, random.random(), torch.rand(3)


def train(rank, file=None):
    if file is None:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    torch.manual_seed(7)
    random.seed(7)
    dataset = Noise()
    sampler = DistributedSampler(dataset, seed=3)
    loader = DataLoader(dataset, 4, sampler=sampler, num_workers=2)
    seen = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        dist.barrier()  # rank 0 looks for the others when an epoch begins
        for indices, *_ in loader:
            seen += indices.tolist()
    dist.barrier()
    os.write(1, f"rank {dist.get_rank()}: {seen}\n".encode())


if __name__ == "__main__":
    how, *more = sys.argv[1:]
    if how == "spawn":
        torch.multiprocessing.spawn(train, args=(more[0],), nprocs=2)
    elif how == "lonely":
        plain = {k: v for k, v in os.environ.items() if not k.startswith("STOKER_")}
        other = subprocess.Popen([sys.executable, __file__, "rank 1", more[0]], env=plain)
        train(0, more[0])
        other.wait()
    elif how == "rank 1":
        train(1, more[0])
    else:
        train(None)
