"""The volumes of remembered_scans.py, as MONAI's dict transforms bring them into shape, for remembered.py."""

from pathlib import Path

from monai.data import Dataset
from monai.transforms import (
    Compose,
    EnsureChannelFirstd,
    LoadImaged,
    Orientationd,
    RandSpatialCropd,
    ScaleIntensityd,
    Spacingd,
)


def volumes(files: list[Path]) -> Dataset:
    """Random 96^3 parts of NIfTI volumes, brought to one orientation and to 1 mm."""
    keys = ["image"]
    transform = Compose(
        [
            LoadImaged(keys),
            EnsureChannelFirstd(keys),
            Orientationd(keys, axcodes="RAS", labels=None),
            Spacingd(keys, pixdim=(1.0, 1.0, 1.0)),
            ScaleIntensityd(keys),
            RandSpatialCropd(keys, roi_size=(96, 96, 96), random_size=False),
        ]
    )
    return Dataset([{"image": str(file)} for file in files], transform)
