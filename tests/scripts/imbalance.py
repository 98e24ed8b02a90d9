"""Find fraud among many honest payments with a weighted sampler; workers are spawned.

usage: python imbalance.py --data FOLDER
"""

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler


class Payments(Dataset):
    """Rows of a CSV file, with a little noise in training."""

    def __init__(self, table, noise=0.0):
        self.rows = table[:, :-1].astype(np.float32)
        self.is_fraud = table[:, -1].astype(np.int64)
        self.noise = noise

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = torch.from_numpy(self.rows[index])
        if self.noise:
            row = row + self.noise * torch.randn(row.shape)
        return row, int(self.is_fraud[index])

    def sample_weights(self):
        num_of_class = np.bincount(self.is_fraud)
        return torch.from_numpy(1.0 / num_of_class[self.is_fraud])


def worker_init_fn(worker_id):
    torch.manual_seed(torch.initial_seed() % 2**32 + worker_id)


@torch.no_grad()
def confusion(model, loader):
    table = torch.zeros(2, 2, dtype=torch.int64)
    for rows, is_fraud in loader:
        for truth, guess in zip(is_fraud, model(rows).argmax(1), strict=True):
            table[truth, guess] += 1
    return table.tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    mp.set_start_method("spawn")
    torch.manual_seed(6)

    table = np.loadtxt(args.data / "payments.csv", delimiter=",")
    train_set, val_set = Payments(table[:1200], noise=0.05), Payments(table[1200:])
    generator = torch.Generator().manual_seed(99)
    sampler = WeightedRandomSampler(
        train_set.sample_weights(), num_samples=480, replacement=True, generator=generator
    )
    train_loader = DataLoader(
        train_set,
        batch_size=48,
        sampler=sampler,
        num_workers=2,
        persistent_workers=True,
        worker_init_fn=worker_init_fn,
        generator=generator,
    )
    val_loader = DataLoader(val_set, batch_size=100)

    model = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        model.train()
        for rows, is_fraud in train_loader:
            loss = nn.functional.cross_entropy(model(rows), is_fraud)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"epoch {epoch} fraud {is_fraud.sum()}/{len(rows)} loss {loss.item():.8f}")
        model.eval()
        print(f"epoch {epoch} confusion {confusion(model, val_loader)}")
    torch.save(model.state_dict(), "fraud.pt")


if __name__ == "__main__":
    main()
