"""Make a folder of NIfTI volumes: smooth bodies with a bright nodule in some of them, and its masks.

Job: volumes of 256x256x128 voxels for train.py, on a machine without a data set.
Promise: the same files every time (seeded by number). Ban: no network.

usage: python examples/medical/volumes.py FOLDER [--count 24]
"""

import argparse
from pathlib import Path

import nibabel
import numpy as np

SHAPE = (256, 256, 128)
SPACING_MM = (0.9, 0.9, 1.2)


def scan(rng):
    """A volume, int16, and the mask of its nodule, uint8."""
    axes = np.meshgrid(*(np.linspace(-1, 1, n, dtype=np.float32) for n in SHAPE), indexing="ij")

    def far_from(centre):
        return sum((axis - c) ** 2 for axis, c in zip(axes, centre, strict=True))

    volume = rng.normal(0, 25, SHAPE).astype(np.float32)
    for _ in range(4):
        volume += 600 * np.exp(-far_from(rng.uniform(-0.5, 0.5, 3)) / rng.uniform(0.05, 0.3))
    mask = far_from(rng.uniform(-0.5, 0.5, 3)) < rng.uniform(0.05, 0.15) ** 2
    return (volume + 400 * mask).astype(np.int16), mask.astype(np.uint8)


def write(folder, count):
    affine = np.diag([-SPACING_MM[0], -SPACING_MM[1], SPACING_MM[2], 1])
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        volume, mask = scan(np.random.default_rng(number))
        nibabel.save(nibabel.Nifti1Image(volume, affine), folder / "images" / f"{number:03}.nii.gz")
        nibabel.save(nibabel.Nifti1Image(mask, affine), folder / "masks" / f"{number:03}.nii.gz")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=24)
    flags = parser.parse_args()
    write(flags.folder, flags.count)
