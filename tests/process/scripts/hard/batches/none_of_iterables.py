"""Iterable datasets and loaders that do not batch hand out None between true samples."""

from torch.utils.data import DataLoader, IterableDataset


class Gaps(IterableDataset):
    def __iter__(self):
        yield from (1, None, 2, None, None, 3)


for workers in (0, 1, 2):
    print(list(DataLoader(Gaps(), batch_size=None, num_workers=workers)))
    print(
        list(DataLoader(Gaps(), 2, num_workers=workers, collate_fn=lambda s: s if all(s) else None))
    )
print(list(DataLoader([None, 5, None], batch_size=None, num_workers=2)))
