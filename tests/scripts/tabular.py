"""Predict prices from a table in large batches, with early stopping.

usage: python tabular.py --data FOLDER
"""

import argparse
import copy
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    TensorDataset,
)


def load_table(file):
    """Columns scaled to mean 0 and deviation 1; the last is the target."""
    table = torch.from_numpy(np.loadtxt(file, delimiter=",", dtype=np.float32))
    table = (table - table.mean(0)) / table.std(0)
    return table[:, :-1].contiguous(), table[:, -1].contiguous()


def whole_batches(dataset, batch_size, **kwargs):
    """A loader that fetches a batch with one indexing: the sampler's items are lists."""
    order = RandomSampler(dataset) if kwargs.pop("shuffle", False) else SequentialSampler(dataset)
    sampler = BatchSampler(order, batch_size, drop_last=False)
    return DataLoader(dataset, sampler=sampler, batch_size=None, **kwargs)


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.num_bad, self.weights = patience, float("inf"), 0, None

    def __call__(self, loss, model):
        """Whether to stop."""
        if loss < self.best - 1e-3:
            self.best, self.num_bad = loss, 0
            self.weights = copy.deepcopy(model.state_dict())
        else:
            self.num_bad += 1
        return self.num_bad >= self.patience


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    total = sum(
        nn.functional.mse_loss(model(rows)[:, 0], price, reduction="sum").item()
        for rows, price in loader
    )
    return total / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--max-epochs", type=int, default=30)
    parser.add_argument("--patience", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(17)

    rows, prices = load_table(args.data / "houses.csv")
    train_set = TensorDataset(rows[:1100], prices[:1100])
    val_set = TensorDataset(rows[1100:1300], prices[1100:1300])
    test_set = TensorDataset(rows[1300:], prices[1300:])
    train_loader = whole_batches(train_set, args.batch_size, shuffle=True, num_workers=1)
    val_loader = whole_batches(val_set, args.batch_size, num_workers=0)
    test_loader = DataLoader(
        test_set, 50, num_workers=1, multiprocessing_context="spawn", drop_last=True
    )

    model = nn.Sequential(
        nn.Linear(rows.shape[1], 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
    should_stop = EarlyStopping(args.patience)
    for epoch in range(args.max_epochs):
        model.train()
        losses = []
        for batch_rows, batch_prices in train_loader:
            loss = nn.functional.mse_loss(model(batch_rows)[:, 0], batch_prices)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        val_loss = evaluate(model, val_loader)
        print(f"epoch {epoch} train {[round(x, 8) for x in losses]} val {val_loss:.8f}")
        if should_stop(val_loss, model):
            print(f"no better for {args.patience} epochs, stopping")
            break

    model.load_state_dict(should_stop.weights)
    print(f"test mse {evaluate(model, test_loader):.8f}")
    torch.save(model.state_dict(), "best.pt")


if __name__ == "__main__":
    main()
