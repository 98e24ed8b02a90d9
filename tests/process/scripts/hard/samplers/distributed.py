"""Two ranks' DistributedSampler in one process, with set_epoch and without."""

from torch.utils.data import DataLoader, DistributedSampler

for workers in (0, 2):
    samplers = [DistributedSampler(range(11), 2, rank, seed=5) for rank in (0, 1)]
    loaders = [DataLoader(range(11), 2, sampler=s, num_workers=workers) for s in samplers]
    for epoch in range(3):
        for sampler in samplers:
            sampler.set_epoch(epoch // 2)
        print([[b.tolist() for b in loader] for loader in loaders])
