"""Train a small 3-D network to find nodules in CT-like volumes.

usage: python examples/medical/train.py --data FOLDER      (images/*.nii.gz and masks/*.nii.gz)
"""

import argparse
import time
from pathlib import Path

import nibabel
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

SIDE = 96


def load(file, mode):
    """A NIfTI file in closest canonical orientation, at 1 mm: float32, [1, D, H, W]."""
    image = nibabel.as_closest_canonical(nibabel.load(file))
    volume = torch.from_numpy(image.get_fdata(dtype="float32"))
    size = [round(n * mm) for n, mm in zip(volume.shape, image.header.get_zooms(), strict=True)]
    return functional.interpolate(volume[None, None], size, mode=mode)[0]


class Scans(Dataset):
    """Random parts of 96^3 voxels, and their masks."""

    def __init__(self, root):
        self.images = sorted(Path(root, "images").glob("*.nii.gz"))
        self.masks = sorted(Path(root, "masks").glob("*.nii.gz"))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        volume = load(self.images[index], "trilinear")
        mask = load(self.masks[index], "nearest")
        volume = (volume - volume.mean()) / volume.std()
        corner = [int(torch.randint(n - SIDE + 1, ())) for n in volume.shape[1:]]
        part = (slice(None), *(slice(start, start + SIDE) for start in corner))
        return volume[part].clone(), mask[part].clone()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    dataset = Scans(args.data)
    loader = DataLoader(dataset, args.batch_size, shuffle=True, num_workers=args.workers)
    model = nn.Sequential(
        nn.Conv3d(1, 4, 5, stride=4, padding=2), nn.ReLU(), nn.Conv3d(4, 1, 3, padding=1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for epoch in range(args.epochs):
        began_s, total = time.perf_counter(), 0.0
        for volumes, masks in loader:
            coarse = functional.max_pool3d(masks, 4)
            loss = functional.binary_cross_entropy_with_logits(model(volumes), coarse)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(volumes)
        seconds = time.perf_counter() - began_s
        print(
            f"epoch {epoch + 1}: loss {total / len(dataset):.4f}, {len(dataset) / seconds:.1f} volumes/s"
        )


if __name__ == "__main__":
    main()
