"""How fast augmented photographs arrive: the image classification input of every tutorial.

JPEG 500x375: decode with PIL, RandomResizedCrop(224), flip, ToTensor, Normalize, batch 64.
Prints images_per_s. A plain script: it runs the same under python and under stoker.
"""

from pathlib import Path

import torch
from one_side import measure_rate, print_line, rate_arguments
from photos import photo_folder
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

BATCH_SIZE = 64
AUGMENT = transforms.Compose(
    [
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ]
)


class Photos(Dataset):
    """(image, class) of every file below `root`; `num_rounds` makes one epoch that much longer."""

    def __init__(self, root: Path, num_rounds: int = 1) -> None:
        classes = sorted(folder.name for folder in root.iterdir())
        paths = sorted(root.glob("*/*.jpg"))
        pairs = [(str(path), classes.index(path.parent.name)) for path in paths]
        self.pairs = pairs * num_rounds

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.pairs[index]
        return AUGMENT(Image.open(path).convert("RGB")), label


def make_loader(num_workers: int, num_rounds: int = 100) -> DataLoader:
    dataset = Photos(photo_folder(), num_rounds)
    return DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True, num_workers=num_workers)


if __name__ == "__main__":
    flags = rate_arguments(__doc__).parse_args()
    figures = measure_rate(make_loader(flags.num_workers), flags)
    print_line({"images_per_s": figures["batches_per_s"] * BATCH_SIZE, **figures})
