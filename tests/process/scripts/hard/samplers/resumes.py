"""A batch sampler keeps what it has given, is saved in mid-epoch, and goes on from there."""

import torch
from torch.utils.data import DataLoader


class Resumable:
    def __init__(self, num, seed):
        self.num, self.seed, self.start = num, seed, 0

    def __iter__(self):
        order = torch.randperm(self.num, generator=torch.Generator().manual_seed(self.seed))
        for k in range(self.start, self.num - 1, 2):
            self.start = k + 2
            yield order[k : k + 2].tolist()
        self.start, self.seed = 0, self.seed + 1

    def state_dict(self):
        return {"start": self.start, "seed": self.seed}


for workers in (0, 2):
    sampler = Resumable(12, 4)
    for k, batch in enumerate(DataLoader(range(12), batch_sampler=sampler, num_workers=workers)):
        print(batch.tolist(), sampler.state_dict())
        if k == 2:
            break
    again = Resumable(12, sampler.seed)
    again.start = sampler.start
    print([b.tolist() for b in DataLoader(range(12), batch_sampler=again, num_workers=workers)])
