"""A pool of processes and an executor work in the loop's body, made before it and in mid-epoch."""

import multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor

from torch.utils.data import DataLoader


def double(x):
    return 2 * x


context = mp.get_context("fork")
with context.Pool(1) as pool:
    for batch in DataLoader(range(6), 2, num_workers=2):
        print(pool.map(double, batch.tolist()))
for k, batch in enumerate(DataLoader(range(6), 2, num_workers=2)):
    if k == 1:
        with ProcessPoolExecutor(1, mp_context=context) as executor:
            print(list(executor.map(double, batch.tolist())))
print(mp.active_children())
