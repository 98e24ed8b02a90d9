"""A sample fails in every third batch; the loop catches it and asks for the next one."""

from torch.utils.data import DataLoader, Dataset


class Sometimes(Dataset):
    def __len__(self):
        return 17

    def __getitem__(self, index):
        if index % 6 == 3:
            raise ValueError(f"sample {index}")
        return index


for workers in (0, 1, 2):
    for persistent in {False, workers > 0}:
        loader = DataLoader(Sometimes(), 2, num_workers=workers, persistent_workers=persistent)
        for _ in range(2):
            iterator, got = iter(loader), []
            while True:
                try:
                    got.append(next(iterator).tolist())
                except ValueError as error:
                    got.append(str(error).splitlines()[-1])
                except StopIteration:
                    break
            print(got)
