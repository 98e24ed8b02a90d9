"""Impure: parts of a sample in the order in which a pool has them ready."""

from concurrent.futures import ThreadPoolExecutor, as_completed
from threading import Event

from torch.utils.data import DataLoader, Dataset


def part(k):
    Event().wait(1e-4)
    return k


class Parts(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        with ThreadPoolExecutor(8) as pool:
            parts = [pool.submit(part, k) for k in range(32)]
            return [done.result() for done in as_completed(parts)]


for _ in DataLoader(Parts(), batch_size=4, num_workers=2):
    pass
