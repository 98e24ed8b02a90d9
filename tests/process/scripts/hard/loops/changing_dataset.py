"""The loop changes the dataset, its length and its transform while iterators of it are alive."""

from torch.utils.data import DataLoader, Dataset


class Grows(Dataset):
    def __init__(self):
        self.items, self.scale = list(range(8)), 1

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index] * self.scale


for workers, persistent in ((0, False), (1, False), (2, True)):
    dataset = Grows()
    loader = DataLoader(dataset, 2, num_workers=workers, persistent_workers=persistent)
    iterator = iter(loader)
    for epoch in range(3):
        dataset.scale += 1
        dataset.items.append(100 + epoch)
        dataset.items[0] = -epoch
        try:
            print([b.tolist() for b in (iterator if epoch == 0 else loader)], len(loader))
        except IndexError as error:
            print(str(error).splitlines()[-1])
    print(dataset.items, dataset.scale)
