"""__del__ of the trainer's objects runs while the interpreter goes down, with iterators inside."""

from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, name, workers):
        self.name, self.loader = name, DataLoader(range(8), 2, num_workers=workers)
        self.iterator = iter(self.loader)
        print(name, next(self.iterator).tolist())

    def __del__(self):
        print("del", self.name, flush=True)


kept = [Trainer("without", 0), Trainer("with", 2)]
kept[0].other, kept[1].other = kept[1], kept[0]
