"""Forecast a day of electric load from the three before; exits with 3 if the goal was missed.

usage: python forecast.py --data FOLDER
"""

import argparse
import csv
import sys
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, get_worker_info


class Windows(Dataset):
    """Sliding windows over the rows of a CSV file: (past, future, first row)."""

    def __init__(self, file, rows, past=72, future=24, jitter=0.0):
        with file.open() as lines:
            table = [(float(row["load"]), float(row["warmth"])) for row in csv.DictReader(lines)]
        self.series = np.array(table[rows], dtype=np.float32)
        self.past, self.future, self.jitter = past, future, jitter
        self.mean = self.std = None

    def fit_scaler(self):
        self.mean, self.std = self.series.mean(0), self.series.std(0)

    def __len__(self):
        return len(self.series) - self.past - self.future + 1

    def __getitem__(self, first):
        middle, last = first + self.past, first + self.past + self.future
        scaled = (self.series[first:last] - self.mean) / self.std
        past, future = scaled[: self.past].copy(), scaled[self.past :, 0]
        if self.jitter:
            past += np.random.normal(0, self.jitter, past.shape).astype(np.float32)
        return past, future, middle


def fit_in_worker(worker_id, seed):
    """Each worker scales its own copy, and has its own noise."""
    get_worker_info().dataset.fit_scaler()
    np.random.seed(seed + worker_id)


class Forecaster(nn.Module):
    def __init__(self, future=24, width=24):
        super().__init__()
        self.lstm = nn.LSTM(2, width, batch_first=True)
        self.head = nn.Linear(width, future)

    def forward(self, past):
        return self.head(self.lstm(past)[0][:, -1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--goal", type=float, default=0.05, help="validation loss to reach")
    parser.add_argument("--seed", type=int, default=100)
    args = parser.parse_args()
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)

    file = args.data / "load.csv"
    train_set = Windows(file, slice(0, 400), jitter=0.05)
    val_set = Windows(file, slice(400, 600))
    val_set.fit_scaler()
    train_loader = DataLoader(
        train_set,
        batch_size=32,
        shuffle=True,
        num_workers=2,
        worker_init_fn=partial(fit_in_worker, seed=args.seed),
    )
    val_loader = DataLoader(val_set, batch_size=64)

    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    best = float("inf")
    for epoch in range(args.epochs):
        model.train()
        for past, future, middle in train_loader:
            loss = nn.functional.mse_loss(model(past), future)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"epoch {epoch} loss {loss.item():.8f} from {middle[0].item()}")
        scheduler.step()
        model.eval()
        with torch.no_grad():
            losses = [nn.functional.mse_loss(model(p), f).item() for p, f, _ in val_loader]
        mean = sum(losses) / len(losses)
        if mean < best:
            best = mean
            torch.save(model.state_dict(), "forecaster.pt")
        print(f"epoch {epoch} val {mean:.8f} lr {scheduler.get_last_lr()[0]:.5f}")
    if best > args.goal:
        print(f"best {best:.8f} misses the goal of {args.goal}")
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
