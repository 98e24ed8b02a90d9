"""A sampler tells when it is asked: how far ahead of the loop, and for the last time."""

from torch.utils.data import DataLoader

told = []


class Tells:
    def __init__(self, num):
        self.num = num

    def __iter__(self):
        told.append("iter")
        for k in range(self.num):
            told.append(f"ask {k}")
            yield k
        told.append("end")

    def __len__(self):
        told.append("len")
        return self.num


for workers, prefetch, num in ((0, None, 3), (1, 1, 4), (2, 2, 9), (2, 3, 2)):
    loader = DataLoader(
        range(20), None, sampler=Tells(num), num_workers=workers, prefetch_factor=prefetch
    )
    iterator = iter(loader)
    told.append("made")
    for batch in iterator:
        told.append(f"got {batch}")
    print(*told, sep=", ")
    told.clear()
