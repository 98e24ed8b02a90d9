"""Predict a number for each molecule: batches are one big graph, with a class of their own.

usage: python graphs.py --data FOLDER
"""

import argparse
import json
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Graph:
    """atoms (N,), edge_index (2, E), energy a number."""

    atoms: torch.Tensor
    edge_index: torch.Tensor
    energy: torch.Tensor


@dataclass
class Batch:
    """Several graphs side by side; `graph_of` tells for each atom in which it is."""

    atoms: torch.Tensor
    edge_index: torch.Tensor
    energy: torch.Tensor
    graph_of: torch.Tensor
    num_graphs: int

    @classmethod
    def from_graphs(cls, graphs):
        edges, graph_of, first = [], [], 0
        for number, graph in enumerate(graphs):
            edges.append(graph.edge_index + first)
            graph_of.append(torch.full_like(graph.atoms, number))
            first += len(graph.atoms)
        return cls(
            torch.cat([graph.atoms for graph in graphs]),
            torch.cat(edges, dim=1),
            torch.stack([graph.energy for graph in graphs]),
            torch.cat(graph_of),
            len(graphs),
        )

    def _each_tensor(self, change):
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{k: change(v) for k, v in values.items() if torch.is_tensor(v)})

    def to(self, device, non_blocking=False):
        return self._each_tensor(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self):
        return self._each_tensor(lambda tensor: tensor.pin_memory())


class GraphLoader(DataLoader):
    """A DataLoader that knows how to put graphs together."""

    def __init__(self, dataset, batch_size=1, shuffle=False, **kwargs):
        kwargs.pop("collate_fn", None)
        super().__init__(dataset, batch_size, shuffle, collate_fn=Batch.from_graphs, **kwargs)


class Molecules(Dataset):
    def __init__(self, entries, transform=None):
        self.entries, self.transform = entries, transform

    def __len__(self):
        return len(self.entries)

    def __getitem__(self, index):
        entry = self.entries[index]
        bonds = torch.tensor(entry["bonds"]).T
        graph = Graph(
            torch.tensor(entry["atoms"]),
            torch.cat([bonds, bonds.flip(0)], dim=1),
            torch.tensor(entry["energy"]),
        )
        return self.transform(graph) if self.transform else graph


def drop_edges(graph, share=0.1):
    kept = torch.rand(graph.edge_index.shape[1]) >= share
    return replace(graph, edge_index=graph.edge_index[:, kept])


class MessagePassing(nn.Module):
    def __init__(self, width=24, num_rounds=2):
        super().__init__()
        self.embed = nn.Embedding(5, width)
        self.rounds = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(num_rounds))
        self.out = nn.Linear(width, 1)

    def forward(self, batch):
        hidden = self.embed(batch.atoms)
        source, target = batch.edge_index
        for layer in self.rounds:
            messages = torch.zeros_like(hidden).index_add_(0, target, hidden[source])
            hidden = torch.relu(layer(torch.cat([hidden, messages], dim=1)))
        pooled = torch.zeros(batch.num_graphs, hidden.shape[1])
        return self.out(pooled.index_add_(0, batch.graph_of, hidden)).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(12)

    entries = json.loads((args.data / "molecules.json").read_text())
    train_loader = GraphLoader(
        Molecules(entries[:96], drop_edges), 16, shuffle=True, num_workers=2, pin_memory=True
    )
    val_loader = GraphLoader(Molecules(entries[96:]), batch_size=12, num_workers=2)
    model = MessagePassing()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(args.epochs):
        for batch in train_loader:
            batch = batch.to("cpu", non_blocking=True)
            loss = nn.functional.mse_loss(model(batch), batch.energy)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"epoch {epoch} edges {batch.edge_index.shape[1]} loss {loss.item():.8f}")
        with torch.no_grad():
            errors = torch.cat([(model(batch) - batch.energy).abs() for batch in val_loader])
        print(f"epoch {epoch} val mae {errors.mean().item():.8f}")


if __name__ == "__main__":
    main()
