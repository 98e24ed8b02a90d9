"""Train on images of many sizes, padded and masked; files that cannot be read are left out.

usage: python coco.py --data FOLDER
"""

import argparse
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, Subset


@dataclass
class Padded:
    """images (B, 3, H, W); mask (B, H, W), True where there is no image; boxes a list of (N, 4)."""

    images: torch.Tensor
    mask: torch.Tensor
    boxes: list[torch.Tensor]
    ids: list[int]

    def to(self, device):
        boxes = [box.to(device) for box in self.boxes]
        return Padded(self.images.to(device), self.mask.to(device), boxes, self.ids)


class CocoLike(Dataset):
    def __init__(self, root):
        self.root = root
        content = json.loads((root / "instances.json").read_text())
        self.images = content["images"]
        self.boxes = defaultdict(list)
        for annotation in content["annotations"]:
            self.boxes[annotation["image_id"]].append(annotation["bbox"])

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        entry = self.images[index]
        with Image.open(self.root / "images" / entry["file_name"]) as image:
            scale = np.random.choice([0.5, 0.75, 1.0])
            size = (int(image.width * scale), int(image.height * scale))
            pixels = np.asarray(image.convert("RGB").resize(size))
        boxes = torch.tensor(self.boxes.get(entry["id"], [])).reshape(-1, 4) * scale
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1), boxes.float(), entry["id"]


def pad(batch):
    images, boxes, ids = zip(*batch, strict=True)
    height, width = (max(image.shape[axis] for image in images) for axis in (1, 2))
    padded = torch.zeros(len(images), 3, height, width)
    mask = torch.ones(len(images), height, width, dtype=torch.bool)
    for image, where, blank in zip(images, padded, mask, strict=True):
        where[:, : image.shape[1], : image.shape[2]] = image / 255
        blank[: image.shape[1], : image.shape[2]] = False
    return Padded(padded, mask, list(boxes), list(ids))


def objectness(batch):
    """1 where a pixel lies in a box."""
    target = torch.zeros_like(batch.mask, dtype=torch.float32)
    for plane, boxes in zip(target, batch.boxes, strict=True):
        for x, y, width, height in boxes.int().tolist():
            plane[y : y + height, x : x + width] = 1
    return target


def readable(loader):
    """The batches of a loader, without those that hold a damaged file."""
    batches = iter(loader)
    while True:
        try:
            yield next(batches)
        except StopIteration:
            return
        except (OSError, UnidentifiedImageError) as error:
            print(f"skipping a batch: {type(error).__name__}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(11)
    np.random.seed(11)

    dataset = CocoLike(args.data / "coco")
    train_set, val_set = Subset(dataset, range(22)), Subset(dataset, range(22, 28))
    batches = BatchSampler(RandomSampler(train_set), batch_size=3, drop_last=True)
    train_loader = DataLoader(
        train_set, batch_sampler=batches, collate_fn=pad, num_workers=3, persistent_workers=True
    )
    val_loader = DataLoader(val_set, batch_size=2, collate_fn=pad, num_workers=1)

    model = nn.Sequential(nn.Conv2d(3, 8, 7, padding=3), nn.ReLU(), nn.Conv2d(8, 1, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def loss_of(batch):
        logits = model(batch.images)[:, 0]
        loss = nn.functional.binary_cross_entropy_with_logits(
            logits, objectness(batch), reduction="none"
        )
        return loss[~batch.mask].mean()

    for epoch in range(args.epochs):
        for batch in readable(train_loader):
            batch = batch.to("cpu")
            loss = loss_of(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"{epoch}: {batch.ids} {tuple(batch.images.shape)} loss {loss.item():.8f}")
        with torch.no_grad():
            print("val", [f"{loss_of(batch).item():.8f}" for batch in val_loader])


if __name__ == "__main__":
    main()
