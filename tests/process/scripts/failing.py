"""A sample that cannot be read."""

from torch.utils.data import DataLoader, Dataset


class Fails(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5:
            raise ValueError("bad sample")
        return index


for batch in DataLoader(Fails(), 2, num_workers=2):
    print(batch)
