"""An exception of a sample that nobody catches ends the script, with its traceback on stderr."""
# ends: 1

from torch.utils.data import DataLoader, Dataset


class Broken(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5:
            raise ValueError(f"sample {index} is broken")
        return index


for batch in DataLoader(Broken(), 2, num_workers=2):
    print(batch)
