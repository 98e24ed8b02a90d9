"""worker_init_fn, __len__, __iter__ and the dataset's copy in the worker fail."""

from torch.utils.data import DataLoader, Dataset, IterableDataset


def init(worker):
    if worker == 0:
        raise PermissionError(f"worker {worker} may not")


class NoIter(IterableDataset):
    def __iter__(self):
        raise ConnectionError("no such server")


class NoLen(Dataset):
    def __len__(self):
        raise NotImplementedError("how should I know")

    def __getitem__(self, index):
        return index


for workers in (0, 1):
    for make in (
        lambda: DataLoader(range(8), 2, num_workers=workers, worker_init_fn=init),  # noqa: B023
        lambda: DataLoader(NoIter(), 2, num_workers=workers),  # noqa: B023
        lambda: DataLoader(NoLen(), 2, sampler=[1, 2, 3], num_workers=workers),  # noqa: B023
    ):
        got = []
        try:
            for batch in make():
                got.append(batch.tolist())
        except Exception as error:
            print(
                type(error).__name__,
                str(error).splitlines()[0],
                str(error).splitlines()[-1],
                end=" ",
            )
        print(got)
