"""The shape of torchvision's reference training, in our own words.

usage: torchvision_reference.py
mixed: repeated augmentation, v2 transforms, MixUp or CutMix while collating.
parts: random_split, ConcatDataset, Subset, default_convert without batches.
"""

from pathlib import Path

import material
import torch
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Sampler,
    Subset,
    default_collate,
    default_convert,
    random_split,
)
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

TRAINING = v2.Compose(
    [
        v2.PILToTensor(),
        v2.RandomResizedCrop(64, antialias=True),
        v2.RandomHorizontalFlip(),
        v2.TrivialAugmentWide(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        v2.RandomErasing(0.3),
        v2.ToPureTensor(),
    ]
)


class Repeated(Sampler[int]):
    """Every index three times in a row, shuffled anew each epoch, a part of them for each rank."""

    def __init__(self, num_samples: int, num_ranks: int, rank: int) -> None:
        self.num_samples, self.num_ranks, self.rank, self.epoch = num_samples, num_ranks, rank, 0

    def __len__(self) -> int:
        return self.num_samples // self.num_ranks

    def __iter__(self):
        draw = torch.Generator().manual_seed(self.epoch)
        order = torch.randperm(self.num_samples, generator=draw).tolist()
        thrice = [index for index in order for _ in range(3)]
        return iter(thrice[self.rank :: self.num_ranks][: len(self)])

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def mixed(photos: Path, model: torch.nn.Module) -> None:
    mix = v2.RandomChoice([v2.MixUp(num_classes=4), v2.CutMix(num_classes=4)])
    dataset = ImageFolder(photos, TRAINING)
    sampler = Repeated(len(dataset), 2, 1)
    loader = DataLoader(
        dataset,
        batch_size=12,
        sampler=sampler,
        num_workers=2,
        collate_fn=lambda samples: mix(*default_collate(samples)),
        drop_last=True,
    )
    for epoch in range(3):
        sampler.set_epoch(epoch)
        material.train(loader, model, 1)


def parts(photos: Path, model: torch.nn.Module) -> None:
    whole = ConcatDataset([ImageFolder(photos, TRAINING), material.Pictures(40)])
    training, validation = random_split(whole, [0.7, 0.3])
    material.train(DataLoader(training, 16, shuffle=True, num_workers=2), model)
    evaluation = DataLoader(validation, 16, num_workers=2, persistent_workers=True)
    for number, (inputs, targets) in enumerate(evaluation):
        material.tell("right", number, (model(inputs).argmax(1) == targets).sum())
    single = DataLoader(
        Subset(whole, range(90, 110)), batch_size=None, num_workers=2, collate_fn=default_convert
    )
    for inputs, target in single:
        material.tell("loss of one", model(inputs[None])[0, int(target)])


if __name__ == "__main__":
    material.begin()
    folder, tiny = material.make_photos(Path("photos")), material.Tiny()
    mixed(folder, tiny)
    parts(folder, tiny)
    material.end()
