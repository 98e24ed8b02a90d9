"""StopIteration and GeneratorExit out of __getitem__, collate and the iterator of an iterable."""

from torch.utils.data import DataLoader, Dataset, IterableDataset


class Stops(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5:
            raise StopIteration("of a sample")
        return index


class Iterable(IterableDataset):
    def __iter__(self):
        yield from (1, 2)
        yield next(iter([]))


def stops(samples):
    if 3 in samples:
        next(iter([]))
    return samples


for workers in (0, 1, 2):
    for loader in (
        DataLoader(Stops(), 2, num_workers=workers),
        DataLoader(range(8), 2, num_workers=workers, collate_fn=stops),
        DataLoader(Iterable(), 2, num_workers=workers),
    ):
        got = []
        try:
            for batch in loader:
                got.append([int(x) for x in batch])
        except Exception as error:
            print(type(error).__name__, str(error).splitlines()[0], end=" ")
        print(got)
