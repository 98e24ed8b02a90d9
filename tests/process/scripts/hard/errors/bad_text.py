"""str() of an exception raises, in a worker; the next batch comes all the same."""

from torch.utils.data import DataLoader, Dataset


class BadText(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Raises(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        if index == 1:
            raise BadText
        return index


iterator = iter(DataLoader(Raises(), None, num_workers=1))
for _ in range(4):
    try:
        print(next(iterator))
    except Exception as error:
        print(type(error).__name__, len(error.args))
