"""PyTorch Geometric's loaders."""

import material
import torch
from torch import nn
from torch_geometric.data import Batch, Data, InMemoryDataset
from torch_geometric.loader import (
    DataListLoader,
    DataLoader,
    DynamicBatchSampler,
    NodeLoader,
    RandomNodeLoader,
)
from torch_geometric.nn import GCNConv, global_mean_pool
from torch_geometric.sampler import BaseSampler, SamplerOutput


def graph_of(index: int, num_nodes: int, num_classes: int = 3) -> Data:
    draw = torch.Generator().manual_seed(index)
    return Data(
        x=torch.rand(num_nodes, 16, generator=draw) + index % num_classes,
        edge_index=torch.randint(num_nodes, (2, 4 * num_nodes), generator=draw),
        y=torch.tensor([index % num_classes]),
    )


class Molecules(InMemoryDataset):
    """Processed once into the folder, then read."""

    @property
    def processed_file_names(self):
        return "graphs.pt"

    def process(self) -> None:
        self.save([graph_of(k, 10 + k % 20) for k in range(120)], self.processed_paths[0])

    def __init__(self, root: str, transform=None) -> None:
        super().__init__(root, transform)
        self.load(self.processed_paths[0])


def jitter(graph: Data) -> Data:
    graph.x = graph.x + 0.1 * torch.randn_like(graph.x)
    return graph


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.classes = GCNConv(16, 8), nn.Linear(8, 3)

    def forward(self, x, edge_index, batch=None):
        hidden = self.conv(x, edge_index).relu()
        return self.classes(hidden if batch is None else global_mean_pool(hidden, batch))


def train(loader, loss_of, model: nn.Module, num_epochs: int = 2) -> None:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(num_epochs):
        for batch in loader:
            loss = loss_of(batch)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            material.tell("loss", epoch, loss)


def graphs(model: Network) -> None:
    dataset = Molecules("molecules", transform=jitter)

    def loss_of(batch: Batch):
        return nn.functional.cross_entropy(model(batch.x, batch.edge_index, batch.batch), batch.y)

    train(DataLoader(dataset, 16, shuffle=True, num_workers=2), loss_of, model)
    sampler = DynamicBatchSampler(dataset, max_num=300, mode="node", shuffle=True)
    train(DataLoader(dataset, batch_sampler=sampler, num_workers=2), loss_of, model)
    lists = DataListLoader(dataset, 16, shuffle=True, num_workers=2, persistent_workers=True)
    train(lists, lambda samples: loss_of(Batch.from_data_list(samples)), model)
    train(DataLoader(dataset, 16, num_workers=0), loss_of, model, 1)


class OneHop(BaseSampler):
    """Some edges into the seeds and their sources, drawn at random; in plain torch."""

    def __init__(self, graph: Data) -> None:
        self.edge_index = graph.edge_index

    def sample_from_nodes(self, index, **_) -> SamplerOutput:
        wanted = torch.isin(self.edge_index[1], index.node)
        wanted &= torch.rand(len(wanted)) < 0.8
        edge = wanted.nonzero()[:, 0]
        sources, targets = self.edge_index[:, edge]
        others = sources[~torch.isin(sources, index.node)].unique()
        node = torch.cat([index.node, others])
        place = torch.empty(int(self.edge_index.max()) + 1, dtype=torch.long)
        place[node] = torch.arange(len(node))
        return SamplerOutput(
            node, place[sources], place[targets], edge, metadata=(index.input_id, None)
        )

    def sample_from_edges(self, index, **_) -> SamplerOutput:
        raise NotImplementedError  # asked of every sampler

    @property
    def edge_permutation(self):
        return None


def nodes(model: Network) -> None:
    graph = graph_of(1, 400)
    graph.y = torch.arange(400) % 3

    def loss_of(part: Data):
        num_seeds = getattr(part, "batch_size", None) or part.num_nodes
        answer = model(part.x, part.edge_index)
        return nn.functional.cross_entropy(answer[:num_seeds], part.y[:num_seeds])

    settings = {"batch_size": 64, "shuffle": True, "num_workers": 2}
    here = NodeLoader(graph, OneHop(graph), **settings)  # to the end: else the report may take
    train(here, loss_of, model)  # `there` for the same loader, made anew
    there = NodeLoader(graph, OneHop(graph), filter_per_worker=True, **settings)
    kept = NodeLoader(graph, OneHop(graph), persistent_workers=True, **settings)
    train(kept, loss_of, model, 3)
    train(there, loss_of, model)
    train(RandomNodeLoader(graph, num_parts=4, shuffle=True, num_workers=2), loss_of, model)


if __name__ == "__main__":
    material.begin()
    network = Network()
    graphs(network)
    nodes(network)
    material.end()
