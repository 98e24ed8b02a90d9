"""atexit handlers iterate loaders, an old one and a new one, with workers and without."""

import atexit

from torch.utils.data import DataLoader

old = DataLoader(range(6), 2, num_workers=1, persistent_workers=True)


def last():
    print("old", [b.tolist() for b in old])
    print("new", [b.tolist() for b in DataLoader(range(4), 2, num_workers=0)])
    try:
        print("workers", [b.tolist() for b in DataLoader(range(4), 2, num_workers=1)])
    except Exception as error:
        print(type(error).__name__)


atexit.register(last)
print([b.tolist() for b in old])
atexit.register(print, "first")
