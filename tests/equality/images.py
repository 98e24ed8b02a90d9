"""Images as a network carries them."""

import torch
from torch.utils.data import Dataset


class Images(Dataset):
    """Normalised, so that they can be coded; cropped at random, so that chains draw."""

    def __init__(self, num_samples: int) -> None:
        self.num_samples = num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        pixels = torch.randint(0, 256, (3, 96, 96))
        return (pixels / 255 - 0.45) / 0.225, index
