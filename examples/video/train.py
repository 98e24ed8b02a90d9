"""Train a small network to tell in which direction things move in videos.

usage: python examples/video/train.py --data FOLDER      (one sub-folder of MP4 files per class)
"""

import argparse
import time
from pathlib import Path

import av
import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

NUM_FRAMES = 32
MEAN = torch.tensor([0.45, 0.45, 0.45]).view(3, 1, 1, 1)
STD = torch.tensor([0.225, 0.225, 0.225]).view(3, 1, 1, 1)


class Videos(Dataset):
    """Clips of 32 frames, float32 [3, 32, 224, 224], cropped at random, and their class."""

    def __init__(self, root):
        self.classes = sorted(folder.name for folder in Path(root).iterdir())
        self.files = sorted(Path(root).glob("*/*.mp4"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        file = self.files[index]
        with av.open(str(file)) as container:
            frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        kept = np.linspace(0, len(frames) - 1, NUM_FRAMES).astype(int)
        clip = torch.from_numpy(np.stack([frames[k] for k in kept])).permute(3, 0, 1, 2)
        clip = functional.interpolate(clip / 255, size=(256, 256), mode="bilinear")
        clip = (clip - MEAN) / STD
        top, left = torch.randint(0, 33, (2,)).tolist()
        clip = clip[:, :, top : top + 224, left : left + 224]
        return clip.contiguous(), self.classes.index(file.parent.name)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    dataset = Videos(args.data)
    loader = DataLoader(dataset, args.batch_size, shuffle=True, num_workers=args.workers)
    model = nn.Sequential(
        nn.Conv3d(3, 8, (3, 8, 8), stride=(2, 8, 8)), nn.ReLU(),
        nn.Conv3d(8, 16, (3, 4, 4), stride=(2, 4, 4)), nn.ReLU(),
        nn.AdaptiveAvgPool3d((3, 1, 1)), nn.Flatten(), nn.Linear(48, len(dataset.classes)),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for epoch in range(args.epochs):
        began_s, total = time.perf_counter(), 0.0
        for clips, labels in loader:
            loss = functional.cross_entropy(model(clips), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
        seconds = time.perf_counter() - began_s
        print(
            f"epoch {epoch + 1}: loss {total / len(dataset):.4f}, {len(dataset) / seconds:.1f} clips/s"
        )


if __name__ == "__main__":
    main()
