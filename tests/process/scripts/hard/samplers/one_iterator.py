"""A sampler is its own iterator, shared by two loaders and by all epochs."""

from torch.utils.data import DataLoader


class Stream:
    def __init__(self):
        self.next = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.next % 7 == 6:
            self.next += 1
            raise StopIteration
        self.next += 1
        return self.next - 1


for workers in (0, 1, 2):
    stream = Stream()
    loaders = [DataLoader(range(1000), 2, sampler=stream, num_workers=workers) for _ in range(2)]
    for loader in (*loaders, *loaders):
        print([b.tolist() for b in loader], stream.next)
