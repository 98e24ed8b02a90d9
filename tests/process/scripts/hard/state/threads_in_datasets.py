"""The dataset starts a pool of threads in each worker, prefetches with them, and never ends them."""

import threading
from concurrent.futures import ThreadPoolExecutor

from torch.utils.data import DataLoader, Dataset


class Pooled(Dataset):
    pool = None

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if self.pool is None:
            self.pool = ThreadPoolExecutor(2)
            self.forever = threading.Thread(target=threading.Event().wait, daemon=True)
            self.forever.start()
        return sum(self.pool.map(lambda k: k * index, range(4)))


for workers, persistent in ((1, False), (2, True)):
    loader = DataLoader(Pooled(), 2, num_workers=workers, persistent_workers=persistent)
    for _ in range(2):
        print([b.tolist() for b in loader])
