"""Classify point clouds, turned and jittered by a generator that lives in the dataset.

usage: python pointcloud.py --data FOLDER
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Clouds(Dataset):
    """{"points": (num_points, 3), "label": int, "path": str}; one sub-folder a class."""

    def __init__(self, root, part, num_points=128, augment=False, seed=0):
        self.classes = sorted(folder.name for folder in root.iterdir())
        self.files = [
            f for f in sorted(root.rglob("*.npy")) if (int(f.stem) >= 9) == (part == "val")
        ]
        self.num_points, self.augment = num_points, augment
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        file = self.files[index]
        points = np.load(file)
        chosen = self.rng.choice(len(points), self.num_points, replace=False)
        points = points[chosen] if self.augment else points[: self.num_points]
        points = points - points.mean(0)
        points /= np.abs(points).max()
        if self.augment:
            points = self.jitter(points @ self.rotation())
        return {
            "points": np.ascontiguousarray(points, dtype=np.float32),
            "label": self.classes.index(file.parent.name),
            "path": f"{file.parent.name}/{file.name}",
        }

    def rotation(self):
        """About the vertical axis."""
        angle = self.rng.uniform(0, 2 * np.pi)
        c, s = np.cos(angle), np.sin(angle)
        return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])

    def jitter(self, points, sigma=0.01, clip=0.03):
        noise = np.clip(self.rng.normal(0, sigma, points.shape), -clip, clip)
        return points * self.rng.uniform(0.8, 1.25) + noise


class PointNet(nn.Module):
    def __init__(self, num_classes, width=48):
        super().__init__()
        self.each = nn.Sequential(
            nn.Conv1d(3, width, 1), nn.BatchNorm1d(width), nn.ReLU(), nn.Conv1d(width, width, 1)
        )
        self.head = nn.Sequential(nn.Dropout(0.3), nn.Linear(width, num_classes))

    def forward(self, points):
        return self.head(self.each(points.transpose(1, 2)).amax(2))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=6)
    parser.add_argument("--seed", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    train_set = Clouds(args.data / "clouds", "train", augment=True, seed=args.seed)
    val_set = Clouds(args.data / "clouds", "val", seed=args.seed)
    train_loader = DataLoader(
        train_set, args.batch_size, shuffle=True, num_workers=2, persistent_workers=True
    )
    # Every epoch forks anew, so each begins with the same draws.
    again_loader = DataLoader(train_set, args.batch_size, num_workers=1)
    val_loader = DataLoader(val_set, args.batch_size, num_workers=2)

    model = PointNet(len(train_set.classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        model.train()
        for batch in train_loader:
            loss = nn.functional.cross_entropy(model(batch["points"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            spread = batch["points"].std().item()
            print(f"epoch {epoch} {batch['path'][0]} spread {spread:.8f} loss {loss.item():.8f}")
        model.eval()
        with torch.no_grad():
            for name, loader in (("train", again_loader), ("val", val_loader)):
                hits = [model(b["points"]).argmax(1) == b["label"] for b in loader]
                print(f"epoch {epoch} {name} accuracy {torch.cat(hits).float().mean():.6f}")
    torch.save({"model": model.state_dict(), "args": vars(args) | {"data": None}}, "pointnet.pt")


if __name__ == "__main__":
    main()
