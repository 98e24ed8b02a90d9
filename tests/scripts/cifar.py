"""Train on images that fit in memory: everything at module level, as notebooks become scripts.

usage: python cifar.py --data FOLDER
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, random_split

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=Path, required=True)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

torch.manual_seed(args.seed)
generator = torch.Generator().manual_seed(args.seed)


class Thumbnails(Dataset):
    """32x32 images and labels out of one .npz file."""

    def __init__(self, file, transform=None):
        archive = np.load(file)
        self.images = archive["images"]
        self.labels = archive["labels"].tolist()
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = torch.from_numpy(self.images[index]).permute(2, 0, 1).float() / 255
        for step in self.transform or []:
            image = step(image)
        return image, self.labels[index]


def random_crop(image, padding=4):
    _, height, width = image.shape
    padded = nn.functional.pad(image, [padding] * 4)
    top, left = torch.randint(0, 2 * padding + 1, (2,)).tolist()
    return padded[:, top : top + height, left : left + width]


augment = [
    random_crop,
    lambda image: image.flip(-1) if torch.rand(1) < 0.5 else image,
    lambda image: (image - 0.47) / 0.25,
]
normalize = [lambda image: (image - 0.47) / 0.25]

train_part, val_part = random_split(
    range(240), [0.8, 0.2], generator=torch.Generator().manual_seed(42)
)
train_set = Subset(Thumbnails(args.data / "thumbnails.npz", augment), list(train_part))
val_set = Subset(Thumbnails(args.data / "thumbnails.npz", normalize), list(val_part))

train_loader = DataLoader(
    train_set,
    batch_size=args.batch_size,
    shuffle=True,
    drop_last=True,
    num_workers=2,
    prefetch_factor=4,
    generator=generator,
)
val_loader = DataLoader(val_set, batch_size=64, num_workers=1)

model = nn.Sequential(
    nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
    nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, 6),
)  # fmt: skip
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(
    optimizer, 1e-2, epochs=args.epochs, steps_per_epoch=len(train_loader)
)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

for epoch in range(args.epochs):
    model.train()
    running_loss = 0.0
    for i, (inputs, labels) in enumerate(train_loader, 0):
        optimizer.zero_grad()
        loss = criterion(model(inputs), labels)
        loss.backward()
        optimizer.step()
        scheduler.step()
        running_loss += loss.item()
        if i % 2 == 1:
            print(f"[{epoch + 1}, {i + 1:3d}] loss: {running_loss / 2:.10f}")
            running_loss = 0.0

    model.eval()
    correct = total = 0
    with torch.no_grad():
        for inputs, labels in val_loader:
            correct += (model(inputs).argmax(1) == labels).sum().item()
            total += labels.size(0)
    print(f"accuracy on {total} images: {100 * correct / total:.2f} %")

print("Finished Training")
