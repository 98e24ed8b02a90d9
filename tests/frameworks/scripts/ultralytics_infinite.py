"""A loader that repeats its sampler for ever, as Ultralytics has it.

usage: ultralytics_infinite.py own | package
"""

import sys

import material
from torch.utils.data import DataLoader


class ForEver:
    def __init__(self, sampler) -> None:
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from iter(self.sampler)


class Endless(DataLoader):
    """Its one iterator is made at once and gives every epoch."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batch_sampler", ForEver(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self) -> int:
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)

    def reset(self) -> None:
        self.iterator = self._get_iterator()


class Changing(material.Pictures):
    """Its augmentation can be closed between two epochs; who keeps workers must reset for it."""

    is_closed = False

    def __getitem__(self, index: int):
        picture, label = super().__getitem__(index)
        return (picture * 0 + index if self.is_closed else picture), label


def train(kind: type[DataLoader], num_workers: int) -> None:
    dataset, model = Changing(100), material.Tiny()
    loader = kind(dataset, batch_size=16, shuffle=True, num_workers=num_workers)
    material.train(loader, model, 2)
    dataset.is_closed = True
    material.train(loader, model, 1)
    loader.reset()
    material.train(loader, model, 1)
    material.tell("length", len(loader))


def main() -> None:
    material.begin()
    if sys.argv[1] == "own":
        train(Endless, 2)
    else:
        from ultralytics.data.build import InfiniteDataLoader

        train(InfiniteDataLoader, 2)
        train(InfiniteDataLoader, 0)
    material.end()


if __name__ == "__main__":
    main()
