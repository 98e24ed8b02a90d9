"""Learn distances from triplets; after each epoch the dataset is told its hardest classes.

usage: python triplets.py --data FOLDER
"""

import argparse
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Triplets(Dataset):
    """(anchor, positive, negative) images, and the labels of the first and the last."""

    def __init__(self, root, size=32):
        self.size = size
        self.files = sorted(root.rglob("*.jpg"))
        self.by_label = defaultdict(list)
        for file in self.files:
            self.by_label[file.parent.name].append(file)
        self.labels = sorted(self.by_label)
        self.hard = {}  # label -> the label most often confused with it

    def __len__(self):
        return len(self.files)

    def read(self, file):
        with Image.open(file) as image:
            side = min(image.size)
            left = random.randint(0, image.width - side)
            top = random.randint(0, image.height - side)
            part = image.crop((left, top, left + side, top + side)).resize((self.size, self.size))
        if random.random() < 0.5:
            part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return torch.from_numpy(np.array(part)).permute(2, 0, 1).float() / 255

    def __getitem__(self, index):
        anchor = self.files[index]
        label = anchor.parent.name
        positive = random.choice([file for file in self.by_label[label] if file != anchor])
        other = self.hard.get(label)
        if other is None or random.random() < 0.3:
            other = random.choice([name for name in self.labels if name != label])
        negative = random.choice(self.by_label[other])
        images = tuple(self.read(file) for file in (anchor, positive, negative))
        return images, label, other

    def mine(self, confused):
        """For each label the other one with the most violations."""
        for label, counts in confused.items():
            self.hard[label] = max(sorted(counts), key=counts.get)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--stop-below", type=float, default=0.08, help="mean loss of an epoch")
    args = parser.parse_args()
    random.seed(2)
    torch.manual_seed(2)

    dataset = Triplets(args.data / "photos" / "train")
    loader = DataLoader(dataset, batch_size=12, shuffle=True, num_workers=3)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(),
        nn.Linear(144, 16),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    criterion = nn.TripletMarginLoss(margin=0.3, reduction="none")
    for epoch in range(args.epochs):
        confused = defaultdict(lambda: defaultdict(int))
        losses = []
        for (anchor, positive, negative), labels, others in loader:
            each = criterion(model(anchor), model(positive), model(negative))
            loss = each.mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            for label, other, value in zip(labels, others, each.tolist(), strict=True):
                confused[label][other] += value > 0
        dataset.mine(confused)
        print(f"epoch {epoch} losses {[round(x, 8) for x in losses]}")
        print(f"epoch {epoch} hardest {sorted(dataset.hard.items())}")
        if sum(losses) / len(losses) < args.stop_below:
            print(f"below {args.stop_below}, done")
            break


if __name__ == "__main__":
    main()
