"""The dataset has __getitems__, which returns a tuple, too little, or something else altogether."""

from torch.utils.data import DataLoader, Dataset


class Many(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return index

    def __getitems__(self, indices):
        return {1: tuple, 2: set}.get(indices[0] // 3, list)(i * 10 for i in indices)[:3]


class Fewer(Many):
    def __getitems__(self, indices):
        return [i * 10 for i in indices[1:]]


for workers in (0, 2):
    print(list(DataLoader(Fewer(), 3, num_workers=workers, collate_fn=lambda s: s)))
    try:
        print(list(DataLoader(Many(), 3, num_workers=workers, collate_fn=lambda s: s)))
    except TypeError as error:
        print(str(error).splitlines()[0], str(error).splitlines()[-1])
