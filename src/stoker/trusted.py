"""Names the packages whose functions keep no state between calls but the three global generators.

So a dataset's fingerprint need not follow them, and what they draw can be seen in the generators.
"""

import sys

PACKAGES = (frozenset(sys.stdlib_module_names) - {"__main__"}) | {
    "PIL", "numpy", "stoker", "torch", "torchvision",
    # read files, and transform what was read
    "albucore", "albumentations", "av", "cv2", "laspy", "librosa", "monai", "nibabel", "pydicom",
    "rasterio", "scipy", "soundfile", "soxr", "torchaudio", "torchcodec",
}  # fmt: skip


def is_trusted(module: object) -> bool:
    """Whether a module, by its dotted name, is of one of these packages."""
    return isinstance(module, str) and module.partition(".")[0] in PACKAGES
