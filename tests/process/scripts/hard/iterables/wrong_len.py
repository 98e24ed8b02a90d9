"""An iterable dataset says a length that is too long, and one that is too short: torch warns."""

from torch.utils.data import DataLoader, IterableDataset


class Says(IterableDataset):
    def __init__(self, said):
        self.said = said

    def __len__(self):
        return self.said

    def __iter__(self):
        yield from range(6)

    def __repr__(self):
        return f"Says({self.said})"


for workers in (0, 2):
    for said in (2, 4, 9):
        loader = DataLoader(Says(said), 1, num_workers=workers)
        print(len(loader), [b.tolist() for b in loader])
        print(sum(1 for _ in loader))
