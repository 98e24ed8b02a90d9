"""Train a tiny detector on images with XML annotations; batches are lists.

usage: python voc.py --data FOLDER
"""

import argparse
import random
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = ("cat", "cup", "rocket")


class Detection(Dataset):
    """(image, target), where target holds boxes (N, 4), labels (N,), image_id and area."""

    def __init__(self, root, part, transforms=()):
        self.root, self.transforms = root, transforms
        self.names = (root / "ImageSets" / f"{part}.txt").read_text().split()

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        name = self.names[index]
        image = Image.open(self.root / "JPEGImages" / f"{name}.jpg").convert("RGB")
        boxes, labels = [], []
        for thing in ElementTree.parse(self.root / "Annotations" / f"{name}.xml").iter("object"):
            if thing.find("difficult").text == "1":
                continue
            box = thing.find("bndbox")
            boxes.append([float(box.find(side).text) for side in ("xmin", "ymin", "xmax", "ymax")])
            labels.append(CLASSES.index(thing.find("name").text))
        boxes = torch.tensor(boxes).reshape(-1, 4)
        target = {
            "boxes": boxes,
            "labels": torch.tensor(labels, dtype=torch.int64),
            "image_id": index,
            "area": (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]),
            "name": name,
        }
        image = torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255
        for transform in self.transforms:
            image, target = transform(image, target)
        return image, target


def flip(image, target):
    if random.random() < 0.5:
        width = image.shape[-1]
        target["boxes"][:, [0, 2]] = width - target["boxes"][:, [2, 0]]
        image = image.flip(-1)
    return image, target


def zoom_out(image, target):
    """Puts the image somewhere on a larger grey one."""
    _, height, width = image.shape
    side = int(max(height, width) * random.uniform(1.0, 1.5))
    top, left = random.randint(0, side - height), random.randint(0, side - width)
    canvas = torch.full((3, side, side), 0.5)
    canvas[:, top : top + height, left : left + width] = image
    target["boxes"] += torch.tensor([left, top, left, top])
    return canvas, target


class Detector(nn.Module):
    """Says for each given box what it holds, from the mean of the features in it."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 12, 5, stride=2, padding=2), nn.ReLU(),
            nn.Conv2d(12, 24, 3, stride=2, padding=1), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(24, len(CLASSES))

    def forward(self, images, targets):
        losses = []
        for image, target in zip(images, targets, strict=True):
            features = self.features(image[None])[0]
            for box, label in zip(target["boxes"] / 4, target["labels"], strict=True):
                left, top, right, bottom = box.int().tolist()
                inside = features[:, top : bottom + 1, left : right + 1].mean((1, 2))
                losses.append(nn.functional.cross_entropy(self.head(inside), label))
        return torch.stack(losses).mean() if losses else self.head.bias.sum() * 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    random.seed(3)
    torch.manual_seed(3)

    train_set = Detection(args.data / "voc", "train", [flip, zoom_out])
    val_set = Detection(args.data / "voc", "val")
    train_loader = DataLoader(
        train_set, batch_size=4, shuffle=True, num_workers=2,
        collate_fn=lambda batch: tuple(zip(*batch, strict=True)),
    )  # fmt: skip
    val_loader = DataLoader(val_set, 1, num_workers=1, collate_fn=lambda batch: batch)

    model = Detector()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(args.epochs):
        for images, targets in train_loader:
            loss = model(images, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            names = ",".join(target["name"] for target in targets)
            print(f"epoch {epoch} loss {loss.item():.8f} on {names}")
        with torch.no_grad():
            losses = {t["name"]: model([x], [t]).item() for ((x, t),) in val_loader}
        print("val", {name: round(loss, 8) for name, loss in losses.items()})
    torch.save(model.state_dict(), "detector.pt")


if __name__ == "__main__":
    main()
