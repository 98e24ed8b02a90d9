"""Workers read through one open file description, whose offset the trainer and they share."""

from pathlib import Path

from torch.utils.data import DataLoader, Dataset

Path("lines").write_bytes(bytes(range(40)))


class Reads(Dataset):
    def __init__(self):
        self.file = Path("lines").open("rb", buffering=0)

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return list(self.file.read(2))


for workers in (0, 1):
    dataset = Reads()
    for _ in range(2):
        print(list(DataLoader(dataset, None, num_workers=workers)), dataset.file.tell())
