"""One trunk, three tasks, three loaders: a long one, a short one that goes round, a tiny one.

usage: python multitask.py --data FOLDER
"""

import argparse
from collections import namedtuple
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset

Sample = namedtuple("Sample", ["image", "target"])


def cycle(loader):
    """Goes round for ever; unlike itertools.cycle it keeps nothing and shuffles again."""
    while True:
        yield from loader


class Task(Dataset):
    """Thumbnails of some labels with a target that a function makes from the image and label."""

    def __init__(self, archive, labels, make_target, noise=0.0):
        chosen = np.isin(archive["labels"], labels)
        self.images, self.labels = archive["images"][chosen], archive["labels"][chosen]
        self.make_target, self.noise = make_target, noise

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = torch.tensor(self.images[index]).permute(2, 0, 1) / 255
        target = self.make_target(image, int(self.labels[index]))
        return Sample(image + self.noise * torch.randn_like(image), target)


class Heads(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, width, 5, stride=3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        self.label = nn.Linear(4 * width, 6)
        self.colour = nn.Linear(4 * width, 3)
        self.is_bright = nn.Linear(4 * width, 1)


def train_epoch(model, loaders, optimizer, epoch):
    label_loader, colour_loader, bright_loader = loaders
    batches = zip(label_loader, cycle(colour_loader), cycle(bright_loader), strict=False)
    for step, (labelled, coloured, bright) in enumerate(batches):
        losses = (
            nn.functional.cross_entropy(model.label(model.trunk(labelled.image)), labelled.target),
            nn.functional.mse_loss(model.colour(model.trunk(coloured.image)), coloured.target),
            nn.functional.binary_cross_entropy_with_logits(
                model.is_bright(model.trunk(bright.image))[:, 0], bright.target.float()
            ),
        )
        optimizer.zero_grad()
        sum(losses).backward()
        optimizer.step()
        print(f"epoch {epoch} step {step}", *(f"{loss.item():.8f}" for loss in losses))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(8)

    archive = np.load(args.data / "thumbnails.npz")
    archive = {name: archive[name] for name in archive.files}
    labelled = ConcatDataset(
        [
            Task(archive, [0, 1, 2], lambda image, label: label),
            Task(archive, [3, 4, 5], lambda image, label: label, noise=0.02),
        ]
    )
    coloured = Task(archive, [3, 4], lambda image, label: image.mean((1, 2)), noise=0.1)
    bright = Task(archive, [5], lambda image, label: bool(image.mean() > 0.4), noise=0.05)
    loaders = (
        DataLoader(labelled, 24, shuffle=True, num_workers=2),
        DataLoader(coloured, 16, shuffle=True, num_workers=1, drop_last=True),
        DataLoader(bright, 8, shuffle=True, num_workers=0),
    )
    model = Heads()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        train_epoch(model, loaders, optimizer, epoch)
    torch.save(model.state_dict(), "multitask.pt")


if __name__ == "__main__":
    main()
