"""What the scripts of this folder share: seeds, pictures, a tiny model, and words for what they see.

Ban: knows nothing of stoker; a script that uses it stays an ordinary training script.
"""

import hashlib
import pickle
import random
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset

SIZE = 64  # pixels, each way: 48 KB a sample as float32, so a batch of 16 is large to stoker
NUM_CLASSES = 4


def begin(seed: int = 7) -> None:
    torch.set_num_threads(1)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def tell(what: str, *values: object) -> None:
    """One line, with every bit of every float."""
    print(what, *(repr(v.item() if isinstance(v, torch.Tensor) else v) for v in values), flush=True)


def end() -> None:
    """Where the three global generators ended."""
    state = (random.getstate(), np.random.get_state(), torch.get_rng_state().numpy().tobytes())
    print("generators", hashlib.sha256(pickle.dumps(state)).hexdigest()[:16])


class Pictures(Dataset):
    """(picture, class) pairs, made from the index and changed by all three generators."""

    def __init__(self, num_samples: int = 160) -> None:
        self.num_samples = num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        picture = picture_of(index)
        if random.random() < 0.5:
            picture = picture.flip(2)
        picture = picture * float(np.random.uniform(0.8, 1.2))
        return picture + 0.1 * torch.randn(3, SIZE, SIZE), index % NUM_CLASSES


def picture_of(index: int) -> torch.Tensor:
    """A 3 x SIZE x SIZE picture that tells its class; the same each time."""
    noise = torch.rand(3, SIZE, SIZE, generator=torch.Generator().manual_seed(index))
    noise[:, :: index % NUM_CLASSES + 2] += 1
    return noise


def make_photos(folder: Path, num_photos: int = 96) -> Path:
    """JPEG files below one folder a class, as ImageFolder has them."""
    for index in range(num_photos):
        pixels = (picture_of(index) * 127).to(torch.uint8).permute(1, 2, 0).numpy()
        file = folder / f"class{index % NUM_CLASSES}" / f"{index:03}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).resize((96, 80)).save(file, quality=90)
    return folder


class Tiny(nn.Module):
    """A model that learns a little in no time."""

    def __init__(self, num_classes: int = NUM_CLASSES) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 4, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(4)
        )
        self.classes = nn.Linear(64, num_classes)

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:  # noqa: N803  # its shape
        return self.classes(self.features(x_BCHW).flatten(1))


def train(loader, model: nn.Module, num_epochs: int = 2) -> None:
    """The plain loop, telling every loss."""
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(num_epochs):
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            tell("loss", epoch, loss)
