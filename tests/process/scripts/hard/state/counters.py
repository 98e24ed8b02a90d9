"""The dataset counts, caches and remembers in each worker, and forgets where torch forgets."""

import functools

from torch.utils.data import DataLoader, Dataset, get_worker_info


class Counts(Dataset):
    num_made = 0

    def __init__(self):
        self.cache, self.num = {}, 0

    def __len__(self):
        return 8

    @functools.lru_cache(maxsize=3)  # noqa: B019
    def cached(self, index):
        Counts.num_made += 1
        return Counts.num_made

    def __getitem__(self, index):
        self.num += 1
        info = get_worker_info()
        hit = self.cache.setdefault(index, self.num)
        return (
            index,
            info and info.id,
            self.num,
            hit,
            self.cached(index % 5),
            info and info.seed % 997,
        )


for workers, persistent in ((0, False), (2, False), (2, True)):
    dataset = Counts()
    loader = DataLoader(dataset, None, num_workers=workers, persistent_workers=persistent)
    import torch

    torch.manual_seed(workers)
    for _ in range(2):
        print(list(loader))
    print(dataset.num, Counts.num_made, len(dataset.cache), dataset.cached.cache_info())
