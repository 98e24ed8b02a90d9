"""MONAI on NIfTI volumes. usage: monai_volumes.py"""

import warnings
from pathlib import Path

import material
import nibabel
import numpy as np
import torch
from torch import nn

warnings.simplefilter("ignore")  # what it says while it is imported depends on what is installed

from monai.data import (  # noqa: E402  # after the filter
    CacheDataset,
    DataLoader,
    Dataset,
    PersistentDataset,
    ThreadDataLoader,
    list_data_collate,
)
from monai.transforms import (  # noqa: E402
    Compose,
    EnsureChannelFirstd,
    LoadImaged,
    RandCropByPosNegLabeld,
    RandFlipd,
    RandGaussianNoised,
    ScaleIntensityd,
)
from monai.utils import set_determinism  # noqa: E402

KEYS = ["image", "label"]
NUM_VOLUMES = 12


def make_volumes(folder: Path) -> list[dict[str, str]]:
    folder.mkdir()
    draw = np.random.default_rng(0)
    files = []
    for number in range(NUM_VOLUMES):
        image = draw.random((40, 40, 24), dtype=np.float32)
        label = (image > 0.7).astype(np.uint8)
        pair = {key: str(folder / f"{key}{number}.nii.gz") for key in KEYS}
        nibabel.save(nibabel.Nifti1Image(image, np.eye(4)), pair["image"])
        nibabel.save(nibabel.Nifti1Image(label, np.eye(4)), pair["label"])
        files.append(pair)
    return files


def transforms() -> Compose:
    """Four patches a volume, so that a batch of 2 volumes has 8."""
    return Compose(
        [
            LoadImaged(KEYS),
            EnsureChannelFirstd(KEYS),
            ScaleIntensityd("image"),
            RandCropByPosNegLabeld(
                KEYS, label_key="label", spatial_size=(24, 24, 16), pos=1, neg=1, num_samples=4
            ),
            RandFlipd(KEYS, prob=0.5, spatial_axis=0),
            RandGaussianNoised("image", prob=0.5),
        ]
    )


def loaders(files: list[dict[str, str]]):
    settings = {"batch_size": 2, "num_workers": 2, "collate_fn": list_data_collate}
    yield DataLoader(CacheDataset(files, transforms(), progress=False), shuffle=True, **settings)
    yield DataLoader(PersistentDataset(files, transforms(), "cache"), shuffle=True, **settings)
    yield ThreadDataLoader(Dataset(files, transforms()), shuffle=True, **settings)
    # One worker, no shuffle: such workers are threads, who share the generators and race.
    settings |= {"num_workers": 1, "use_thread_workers": True}
    yield ThreadDataLoader(Dataset(files, transforms()), **settings)


def train(loader, num_epochs: int = 2) -> None:
    model = nn.Conv3d(1, 1, 3, padding=1)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(num_epochs):
        for batch in loader:
            answer = model(batch["image"].as_tensor())
            loss = nn.functional.binary_cross_entropy_with_logits(
                answer, batch["label"].as_tensor().float()
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            material.tell("loss", epoch, tuple(batch["image"].shape), loss)


if __name__ == "__main__":
    material.begin()
    set_determinism(7)
    volumes = make_volumes(Path("volumes"))
    for loader in loaders(volumes):
        train(loader)
    material.end()
