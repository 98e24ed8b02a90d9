"""An iterable dataset is its own iterator, and goes on where the last epoch ended."""

from torch.utils.data import DataLoader, IterableDataset


class Cursor(IterableDataset):
    def __init__(self):
        self.k = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.k += 1
        if self.k % 5 == 0:
            raise StopIteration
        return self.k


for workers, persistent in ((0, False), (1, False), (2, True)):
    loader = DataLoader(Cursor(), 2, num_workers=workers, persistent_workers=persistent)
    print([[b.tolist() for b in loader] for _ in range(3)], loader.dataset.k)
