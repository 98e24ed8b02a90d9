"""NIfTI volumes and DICOM series, of which parts are cut, for remembered.py."""

from pathlib import Path

import nibabel
import numpy as np
import pydicom
import torch
from torch.nn import functional
from torch.utils.data import Dataset


class Volumes(Dataset):
    """Random 96^3 parts of NIfTI volumes, brought to one orientation and to 1 mm."""

    def __init__(self, files: list[Path]) -> None:
        self.files = [str(file) for file in files]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        image = nibabel.as_closest_canonical(nibabel.load(self.files[index]))
        volume = torch.from_numpy(image.get_fdata(dtype="float32"))
        size = [round(n * mm) for n, mm in zip(volume.shape, image.header.get_zooms(), strict=True)]
        volume = functional.interpolate(volume[None, None], size, mode="trilinear")[0]
        volume = (volume - volume.mean()) / volume.std()
        top, left, front = (torch.randint(n - 96 + 1, ()).item() for n in volume.shape[1:])
        return volume[:, top : top + 96, left : left + 96, front : front + 96].clone()


class Scans(Dataset):
    """Random parts of DICOM series of 48 slices."""

    def __init__(self, folders: list[Path]) -> None:
        self.series = [sorted(map(str, folder.glob("*.dcm"))) for folder in folders]

    def __len__(self) -> int:
        return len(self.series)

    def __getitem__(self, index: int) -> torch.Tensor:
        slices = [pydicom.dcmread(file) for file in self.series[index]]
        slices.sort(key=lambda each: int(each.InstanceNumber))
        volume = np.stack([each.pixel_array for each in slices]).astype(np.float32)
        volume = volume * float(slices[0].RescaleSlope) + float(slices[0].RescaleIntercept)
        top = int(torch.randint(volume.shape[1] - 96 + 1, ()))
        left = int(torch.randint(volume.shape[2] - 96 + 1, ()))
        return torch.from_numpy(volume[:, top : top + 96, left : left + 96].copy())


class Tiles(Dataset):
    """Random parts of GeoTIFF tiles of four bands."""

    def __init__(self, files: list[Path]) -> None:
        self.files = [str(file) for file in files]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        import rasterio

        with rasterio.open(self.files[index]) as file:
            tile = torch.from_numpy(file.read().astype(np.float32) / 10_000)
        top, left = (int(torch.randint(n - 256 + 1, ())) for n in tile.shape[1:])
        return tile[:, top : top + 256, left : left + 256].clone()
