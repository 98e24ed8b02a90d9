"""Four threads each iterate a loader of their own, two of them the same one, at once."""

import threading

from torch.utils.data import DataLoader

shared = DataLoader(range(20), 2, num_workers=1)
got = {}


def loop(name, loader):
    got[name] = [b.tolist() for _ in range(2) for b in loader]


threads = [
    threading.Thread(
        target=loop, args=(k, shared if k < 2 else DataLoader(range(k * 5), 2, num_workers=k % 2))
    )
    for k in range(4)
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(*sorted(got.items()), sep="\n")
