"""A sampler fails once and works the next time it is asked; the loop asks again."""

from torch.utils.data import DataLoader


class Flaky:
    def __init__(self):
        self.k = -1

    def __iter__(self):
        return self

    def __next__(self):
        self.k += 1
        if self.k == 6:
            raise TimeoutError("the server of indices is busy")
        if self.k > 12:
            raise StopIteration
        return self.k


for workers in (0, 1, 2):
    iterator = iter(DataLoader(range(99), 1, sampler=Flaky(), num_workers=workers))
    got = []
    while True:
        try:
            got.append(next(iterator).item())
        except TimeoutError as error:
            got.append(str(error))
        except StopIteration:
            break
    print(got)
