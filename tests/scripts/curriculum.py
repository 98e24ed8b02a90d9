"""Fill in hidden tokens, of short sequences first and of long ones later, with a sampler of our own.

usage: python curriculum.py --data FOLDER
"""

import argparse
import math
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler


class Sequences(Dataset):
    """Pieces of the token stream, padded to `max_length`; some tokens are hidden."""

    def __init__(self, file, num_pieces, max_length=16, hide=0.0):
        stream = np.fromfile(file, dtype=np.uint16).astype(np.int64)
        draw = np.random.RandomState(0)
        starts = draw.randint(0, len(stream) - max_length, num_pieces)
        self.lengths = draw.randint(3, max_length + 1, num_pieces)
        self.pieces = [stream[s : s + n] for s, n in zip(starts, self.lengths, strict=True)]
        self.max_length, self.hide = max_length, hide

    def __len__(self):
        return len(self.pieces)

    def __getitem__(self, index):
        piece = torch.from_numpy(self.pieces[index].copy())
        target = piece.clone()
        piece[torch.rand(len(piece)) < self.hide] = 64
        padding = (0, self.max_length - len(piece))
        return {
            "tokens": nn.functional.pad(piece, padding, value=65),
            "target": nn.functional.pad(target, padding, value=-100),
            "difficulty": float(self.lengths[index] / self.max_length),
        }


class CurriculumSampler(Sampler):
    """The easiest share of the samples in random order; the share grows with the epochs."""

    def __init__(self, difficulties, num_epochs, seed=0):
        self.order = np.argsort(difficulties, kind="stable").tolist()
        self.num_epochs, self.seed, self.epoch = num_epochs, seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        share = 0.3 + 0.7 * self.epoch / max(1, self.num_epochs - 1)
        return math.ceil(share * len(self.order))

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        for place in torch.randperm(len(self), generator=generator).tolist():
            yield self.order[place]


class Denoiser(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(66, width, padding_idx=65)
        self.conv = nn.Conv1d(width, width, 3, padding=1)
        self.out = nn.Linear(width, 64)

    def forward(self, tokens):
        hidden = self.embed(tokens)
        hidden = hidden + torch.relu(self.conv(hidden.transpose(1, 2))).transpose(1, 2)
        return self.out(hidden)


def train_epoch(model, loader, optimizer, name):
    for batch in loader:
        logits = model(batch["tokens"])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch["target"].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hidden = (batch["tokens"] == 64).sum().item()
        hardest = batch["difficulty"].max().item()
        print(f"{name} hidden {hidden} hardest {hardest:.4f} loss {loss.item():.8f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(13)

    dataset = Sequences(args.data / "tokens" / "train.bin", num_pieces=160)
    sampler = CurriculumSampler(dataset.lengths, args.epochs)
    loader = DataLoader(dataset, batch_size=20, sampler=sampler, num_workers=args.workers)
    # Its workers live on, with the dataset as it was when they began: `hide` stays 0 for them.
    lasting_loader = DataLoader(
        dataset, batch_size=40, num_workers=1, persistent_workers=True, drop_last=True
    )
    model = Denoiser()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        train_epoch(model, loader, optimizer, f"epoch {epoch}")
        train_epoch(model, lasting_loader, optimizer, f"epoch {epoch} review")
        dataset.hide += 0.15
    torch.save(model.state_dict(), "denoiser.pt")


if __name__ == "__main__":
    main()
