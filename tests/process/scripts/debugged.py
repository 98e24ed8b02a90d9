"""Dataset code with a forgotten breakpoint."""

from torch.utils.data import DataLoader, Dataset


class Debugged(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        breakpoint()
        return index


print("first", flush=True)
print(list(DataLoader(Debugged(), 2, num_workers=1)))
