"""An iterable raises in one worker; the loop asks on, and the other worker's batches come."""

from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Fails(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        worker = info.id if info else 0
        for k in range(5):
            if worker == 0 and k == 2:
                raise OSError("shard is corrupt")
            yield worker * 100 + k


for workers in (0, 1, 2):
    iterator, got = iter(DataLoader(Fails(), 1, num_workers=workers)), []
    for _ in range(12):
        try:
            got.append(next(iterator).item())
        except StopIteration:
            got.append("end")
        except OSError as error:
            got.append(str(error).splitlines()[-1])
    print(got)
