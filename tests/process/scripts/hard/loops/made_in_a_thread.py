"""An iterator is made in one thread, which ends, and read in others, one batch each."""

import threading

from torch.utils.data import DataLoader

made = []


def make(loader):
    made.append(iter(loader))


def read():
    print(next(made[-1]).tolist())


for persistent in (False, True):
    loader = DataLoader(range(10), 2, num_workers=2, persistent_workers=persistent)
    for _ in range(2):
        for thread in (threading.Thread(target=make, args=[loader]), threading.Thread(target=read)):
            thread.start()
            thread.join()
        print([b.tolist() for b in made[-1]])
