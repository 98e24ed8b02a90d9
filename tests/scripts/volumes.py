"""Segment scans by 3D patches: several patches from each volume, flattened into one batch.

usage: python volumes.py --data FOLDER
"""

import argparse
from itertools import chain
from pathlib import Path

import nibabel
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, StackDataset, default_collate


class Images(Dataset):
    """NIfTI files, read when they are asked for."""

    def __init__(self, files):
        self.files = list(files)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return np.asarray(nibabel.load(self.files[index]).dataobj)


class Patches(Dataset):
    """A list of `num_patches` patches of a volume, every second one around the organ."""

    def __init__(self, volumes, patch_size, num_patches, seed=None):
        self.volumes = volumes
        self.patch_size, self.num_patches = patch_size, num_patches
        self.random = np.random.RandomState(seed) if seed is not None else np.random

    def __len__(self):
        return len(self.volumes)

    def corner(self, label, near):
        limits = np.array(label.shape) - self.patch_size
        if near:
            inside = np.argwhere(label)
            centre = inside[self.random.randint(len(inside))]
            return np.clip(centre - self.patch_size // 2, 0, limits)
        return np.array([self.random.randint(limit + 1) for limit in limits])

    def __getitem__(self, index):
        volume = self.volumes[index]
        patches = []
        for number in range(self.num_patches):
            corner = self.corner(volume["label"], near=number % 2 == 0)
            part = tuple(slice(c, c + self.patch_size) for c in corner)
            scan = np.clip(volume["scan"][part] / np.float32(300), -1, 2)
            patches.append(
                {
                    "scan": torch.from_numpy(scan)[None],
                    "label": torch.from_numpy(volume["label"][part].astype(np.float32)),
                    "corner": corner,
                }
            )
        return patches


def collate_lists(batch):
    return default_collate(list(chain.from_iterable(batch)))


def dice_loss(logits, label):
    probability = logits.sigmoid()
    overlap = 2 * (probability * label).sum((1, 2, 3))
    total = probability.sum((1, 2, 3)) + label.sum((1, 2, 3))
    return 1 - ((overlap + 1) / (total + 1)).mean()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--patch-size", type=int, default=20)
    args = parser.parse_args()
    np.random.seed(31)
    torch.manual_seed(31)

    folder = args.data / "volumes"
    scans, labels = sorted(folder.glob("*_scan.nii.gz")), sorted(folder.glob("*_label.nii.gz"))
    train_volumes = StackDataset(scan=Images(scans[:6]), label=Images(labels[:6]))
    val_volumes = StackDataset(scan=Images(scans[6:]), label=Images(labels[6:]))
    train_loader = DataLoader(
        Patches(train_volumes, args.patch_size, num_patches=4),
        batch_size=2,
        shuffle=True,
        num_workers=2,
        collate_fn=collate_lists,
    )
    val_loader = DataLoader(
        Patches(val_volumes, args.patch_size, num_patches=2, seed=0),
        num_workers=1,
        collate_fn=collate_lists,
        persistent_workers=True,
    )
    model = nn.Sequential(
        nn.Conv3d(1, 6, 3, padding=1), nn.InstanceNorm3d(6), nn.ReLU(), nn.Conv3d(6, 1, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(args.epochs):
        for batch in train_loader:
            logits = model(batch["scan"])[:, 0]
            loss = dice_loss(logits, batch["label"])
            loss = loss + nn.functional.binary_cross_entropy_with_logits(logits, batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"epoch {epoch} corner {batch['corner'][0].tolist()} loss {loss.item():.8f}")
        with torch.no_grad():
            for batch in val_loader:
                loss = dice_loss(model(batch["scan"])[:, 0], batch["label"])
                print(f"epoch {epoch} val dice {1 - loss.item():.8f}")
    torch.save(model.state_dict(), "segmenter.pt")


if __name__ == "__main__":
    main()
