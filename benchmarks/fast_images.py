"""How fast images arrive that are decoded, cropped and turned into tensors: one --case a pipeline.

The first epoch, one that does not end while it is measured; batch 64. `images` and `photos` (2 megapixels) with the
transforms of every tutorial, `val` with those of a validation set, `v2` and `to-image-first` with torchvision's second
transforms, `timm` and `vit` with those packages' own, `cv2` and `albumentations` with nothing that stoker makes faster.
Prints images_per_s. A plain script: it runs the same under python and under stoker.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from one_side import measure_rate, print_line, rate_arguments
from photos import large_photo_folder, photo_folder
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as v1
from torchvision.transforms import v2

BATCH_SIZE = 64
NUM_ROUNDS = 100
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def of_file(transform: Callable[[Any], Any]) -> Callable[[str], Any]:
    return lambda path: transform(Image.open(path).convert("RGB"))


def of_tutorials() -> Callable[[str], Any]:
    crop = [v1.RandomResizedCrop(224), v1.RandomHorizontalFlip()]
    return of_file(v1.Compose([*crop, v1.ToTensor(), v1.Normalize(MEAN, STD)]))


def of_validation() -> Callable[[str], Any]:
    crop = [v1.Resize(256), v1.CenterCrop(224)]
    return of_file(v1.Compose([*crop, v1.ToTensor(), v1.Normalize(MEAN, STD)]))


def of_v2() -> Callable[[str], Any]:
    crop = [v2.RandomResizedCrop(224), v2.RandomHorizontalFlip()]
    to_tensor = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    return of_file(v2.Compose([*crop, *to_tensor]))


def of_v2_tensors() -> Callable[[str], Any]:
    crop = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()]
    normal = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    return of_file(v2.Compose([v2.ToImage(), *crop, *normal]))


def of_timm() -> Callable[[str], Any]:
    from timm.data import create_transform

    return of_file(create_transform(224, is_training=True, color_jitter=None))


def of_vit() -> Callable[[str], Any]:
    from transformers import ViTImageProcessor

    processor = ViTImageProcessor()
    return of_file(lambda image: processor(image, return_tensors="pt")["pixel_values"][0])


def of_cv2() -> Callable[[str], Any]:
    import cv2

    def make(path: str) -> torch.Tensor:
        image = cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)
        small = cv2.resize(image, (224, 224), interpolation=cv2.INTER_LINEAR)
        return torch.from_numpy(small).permute(2, 0, 1).float().div(255)

    return make


def of_albumentations() -> Callable[[str], Any]:
    import albumentations
    import cv2
    from albumentations.pytorch import ToTensorV2

    crop = [albumentations.RandomResizedCrop(size=(224, 224)), albumentations.HorizontalFlip()]
    transform = albumentations.Compose([*crop, albumentations.Normalize(MEAN, STD), ToTensorV2()])

    def make(path: str) -> torch.Tensor:
        image = cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)
        return transform(image=image)["image"]

    return make


CASES = {
    "images": of_tutorials,
    "photos": of_tutorials,
    "val": of_validation,
    "v2": of_v2,
    "to-image-first": of_v2_tensors,
    "timm": of_timm,
    "vit": of_vit,
    "cv2": of_cv2,
    "albumentations": of_albumentations,
}


class Photos(Dataset):
    """(image, class) of every file below `root`, NUM_ROUNDS times."""

    def __init__(self, root: Path, make: Callable[[str], Any]) -> None:
        classes = sorted(folder.name for folder in root.iterdir())
        paths = sorted(root.glob("*/*.jpg"))
        self.pairs = NUM_ROUNDS * [(str(path), classes.index(path.parent.name)) for path in paths]
        self.make = make

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.pairs[index]
        return self.make(path), label


def main() -> None:
    parser = rate_arguments(__doc__)
    parser.add_argument("--case", choices=CASES, required=True)
    flags = parser.parse_args()
    folder = large_photo_folder() if flags.case == "photos" else photo_folder()
    dataset = Photos(folder, CASES[flags.case]())
    loader = DataLoader(dataset, BATCH_SIZE, shuffle=True, num_workers=flags.num_workers)
    figures = measure_rate(loader, flags)
    print_line({"images_per_s": figures["batches_per_s"] * BATCH_SIZE, **figures})


if __name__ == "__main__":
    main()
