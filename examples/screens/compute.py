"""A model that takes far longer than its data, two workers, a bar of tqdm."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

if __name__ == "__main__":
    torch.manual_seed(0)
    data = TensorDataset(torch.rand(3_000, 3, 64, 64), torch.randint(0, 10, (3_000,)))
    loader = DataLoader(data, 32, shuffle=True, num_workers=2)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 5),
        nn.ReLU(),
        nn.Conv2d(32, 32, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(10),
    )
    for x, y in tqdm(loader, "steps"):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
    print(f"loss {loss.item():.3f}")
