"""Photographs in folders, random crops, two workers, a bar of tqdm."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms
from tqdm import tqdm

augment = transforms.Compose(
    [
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ]
)
if __name__ == "__main__":
    torch.manual_seed(0)
    photos = datasets.ImageFolder(sys.argv[1], augment)
    loader = DataLoader(photos, 32, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.Conv2d(3, 8, 7, stride=8), nn.ReLU(), nn.Flatten(), nn.LazyLinear(20))
    optimizer = None
    for epoch in range(2):
        for x, y in tqdm(loader, f"epoch {epoch}"):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.01)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
