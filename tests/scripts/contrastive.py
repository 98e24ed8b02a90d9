"""Learn features without labels from two random views of each photograph.

usage: python contrastive.py --data FOLDER
"""

import argparse
import random
from pathlib import Path

import torch
from PIL import ImageFilter
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from torchvision.datasets.folder import default_loader

try:
    from tqdm import tqdm
except ImportError:

    def tqdm(batches, **_):
        return batches


class TwoCropTransform:
    def __init__(self, base, other=None):
        self.base, self.other = base, other or base

    def __call__(self, image):
        return {"query": self.base(image), "key": self.other(image)}


class GaussianBlur:
    def __init__(self, sigma=(0.1, 2.0)):
        self.sigma = sigma

    def __call__(self, image):
        return image.filter(ImageFilter.GaussianBlur(random.uniform(*self.sigma)))


class Photographs(Dataset):
    """All images below a folder: views, the place in the list, and where the file is."""

    def __init__(self, folder, transform):
        self.folder = folder
        self.files = sorted(folder.rglob("*.jpg"))
        self.transform = transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        file = self.files[index]
        views = self.transform(default_loader(file))
        return {"views": views, "index": index, "file": str(file.relative_to(self.folder))}


class Encoder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, 16, 5, stride=3), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2), nn.BatchNorm2d(32), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, dim),
        )  # fmt: skip

    def forward(self, x):
        return nn.functional.normalize(self.trunk(x), dim=1)


def info_nce(query, key, temperature=0.2):
    return nn.functional.cross_entropy(query @ key.T / temperature, torch.arange(len(query)))


def make_loader(args):
    weak = transforms.Compose(
        [
            transforms.RandomResizedCrop(48, scale=(0.4, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Lambda(lambda x: (x - 0.5) / 0.25),
        ]
    )
    strong = transforms.Compose(
        [
            transforms.RandomResizedCrop(48, scale=(0.2, 1.0)),
            transforms.RandomApply([transforms.ColorJitter(0.4, 0.4, 0.4, 0.1)], p=0.8),
            transforms.RandomGrayscale(p=0.2),
            transforms.RandomApply([GaussianBlur()], p=0.5),
            transforms.ToTensor(),
            transforms.Lambda(lambda x: (x - 0.5) / 0.25),
            transforms.RandomErasing(p=0.2),
        ]
    )
    dataset = Photographs(args.data / "photos" / "train", TwoCropTransform(weak, strong))
    return DataLoader(
        dataset, batch_size=args.batch_size, shuffle=True, drop_last=True,
        num_workers=2, persistent_workers=True, prefetch_factor=1,
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    args = parser.parse_args()
    random.seed(9)
    torch.manual_seed(9)

    loader = make_loader(args)
    encoder, momentum_encoder = Encoder(), Encoder()
    momentum_encoder.load_state_dict(encoder.state_dict())
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(args.epochs):
        for batch in tqdm(loader, desc=f"epoch {epoch}", disable=None):
            query = encoder(batch["views"]["query"])
            with torch.no_grad():
                key = momentum_encoder(batch["views"]["key"])
            loss = info_nce(query, key)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pairs = zip(momentum_encoder.parameters(), encoder.parameters(), strict=True)
            for slow, fast in pairs:
                slow.data.lerp_(fast.data, 0.01)
            print(f"epoch {epoch} loss {loss.item():.8f} {batch['file'][0]} {batch['index'][:4]}")


if __name__ == "__main__":
    main()
