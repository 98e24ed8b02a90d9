"""Photographs for remembered.py, as ImageFolder's users write it."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from photos import large_photo_folder, photo_folder
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, get_worker_info
from torchvision import transforms as v1
from torchvision.transforms import v2

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class Photos(Dataset):
    """(image, class) of photographs."""

    def __init__(self, files: list[Path], transform: Any) -> None:
        classes = sorted({file.parent.name for file in files})
        self.samples = [(str(file), classes.index(file.parent.name)) for file in files]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.samples[index]
        return self.transform(Image.open(path).convert("RGB")), label


class PhotoStream(IterableDataset):
    """The same, as people stream them: each worker shuffles its shard anew in every epoch."""

    def __init__(self, photos: Photos) -> None:
        self.photos = photos

    def __len__(self) -> int:
        return len(self.photos)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        worker = get_worker_info()
        shard = range(worker.id, len(self.photos), worker.num_workers)
        for index in random.sample(shard, len(shard)):
            yield self.photos[index]


def files_of(case: str) -> list[Path]:
    folder = large_photo_folder() if case == "photos-train" else photo_folder()
    return sorted(folder.glob("*/*.jpg"))


def photos(case: str, files: list[Path]) -> Dataset:
    if case == "decoders-iterable":
        return PhotoStream(photos("images-train", files))
    to_tensor = [v1.ToTensor(), v1.Normalize(MEAN, STD)]
    to_tensor_2 = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    crop = [v1.RandomResizedCrop(224), v1.RandomHorizontalFlip()]
    crop_2 = [v2.RandomResizedCrop(224), v2.RandomHorizontalFlip()]
    transform = {
        "images-val": v1.Compose([v1.Resize(256), v1.CenterCrop(224), *to_tensor]),
        "resize-crop": v1.Compose([v1.Resize(256), v1.RandomCrop(224), *to_tensor]),
        "images-train": v1.Compose([*crop, *to_tensor]),
        "images-train-v2": v2.Compose([*crop_2, *to_tensor_2]),
        "photos-train": v1.Compose([*crop, *to_tensor]),
    }[case]
    return Photos(files, transform)
