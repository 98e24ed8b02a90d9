"""Tell which way the camera moves: clips decoded from MP4 files, sampled in time.

usage: python video.py --data FOLDER
"""

import argparse
import itertools
import random
from pathlib import Path

import av
import numpy as np
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, default_convert


class Clips(Dataset):
    """`num_frames` frames, every `stride`-th, from a random place; or all such clips in order."""

    def __init__(self, files, num_frames=8, stride=2, training=True):
        self.files, self.training = files, training
        self.num_frames, self.stride = num_frames, stride

    def __len__(self):
        return len(self.files)

    def frame_numbers(self, num_available):
        span = (self.num_frames - 1) * self.stride + 1
        first = random.randint(0, num_available - span) if self.training else 0
        return range(first, first + span, self.stride)

    def __getitem__(self, index):
        file = self.files[index]
        with av.open(str(file)) as container:
            stream = container.streams.video[0]
            wanted = self.frame_numbers(stream.frames)
            frames = itertools.islice(container.decode(stream), wanted.stop)
            clip = np.stack(
                [frame.to_ndarray(format="rgb24") for k, frame in enumerate(frames) if k in wanted]
            )
        if self.training:
            top, left = random.randint(0, 8), random.randint(0, 8)
            clip = clip[:, top : top + 56, left : left + 72]
        else:
            clip = clip[:, 4:60, 4:76]
        label = int(file.stem[-1])
        if self.training and label < 2 and random.random() < 0.5:  # mirrored: the other way
            clip, label = clip[:, :, ::-1], 1 - label
        return np.ascontiguousarray(clip), label, file.stem


class FrameDifference(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(3, 8, (2, 5, 5), stride=(1, 3, 3))
        self.head = nn.Linear(8, 4)

    def forward(self, clips):
        x = clips.permute(0, 4, 1, 2, 3).float().div_(255)
        return self.head(torch.relu(self.conv(x)).mean((2, 3, 4)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    random.seed(21)
    torch.manual_seed(21)

    files = sorted((args.data / "videos").glob("*.mp4"))
    slow, fast = Clips(files[:10], stride=1), Clips(files[:10], stride=2)
    train_loader = DataLoader(
        ConcatDataset([slow, fast]),
        batch_size=4,
        shuffle=True,
        num_workers=args.workers,
        prefetch_factor=3,
        timeout=60,
        drop_last=True,
    )
    val_loader = DataLoader(
        Clips(files[10:], training=False),
        batch_size=None,
        num_workers=1,
        collate_fn=default_convert,
    )
    model = FrameDifference()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    recent = []
    for epoch in range(args.epochs):
        for clips, labels, names in train_loader:
            assert clips.dtype is torch.uint8
            recent = [*recent[-2:], clips]  # for the picture at the end
            loss = nn.functional.cross_entropy(model(clips), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"epoch {epoch} loss {loss.item():.8f} {' '.join(names)}")
        with torch.no_grad():
            hits = [model(clip[None]).argmax().item() == label for clip, label, _ in val_loader]
        print(f"epoch {epoch} val {sum(hits)}/{len(hits)}")
    np.save("last_clips.npy", torch.cat(recent).numpy())


if __name__ == "__main__":
    main()
