"""Generator functions own loaders, and are closed, thrown into and dropped in mid-epoch."""

import gc

from torch.utils.data import DataLoader


def batches(workers, log):
    try:
        yield from DataLoader(range(20), 2, num_workers=workers)
    except KeyError as error:
        log.append(f"thrown {error}")
        yield "last"
    finally:
        log.append("closed")


for workers in (0, 2):
    log = []
    one, other, third = (batches(workers, log) for _ in range(3))
    print(next(one), next(other), next(third))
    one.close()
    print(other.throw(KeyError("k")), list(other))
    del third
    gc.collect()
    print(log)
