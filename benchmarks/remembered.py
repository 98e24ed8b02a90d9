"""How fast epochs are once deterministic work is remembered, and what the first one costs.

Plain scripts' datasets, one a --case; a batch is used by nobody. Prints first_per_s, of the first
epoch, and later_per_s, the median of the last ones, behind those in which everything is kept.
A plain script: it runs the same under python and under stoker.
"""

import argparse
import itertools
import statistics
import time
from pathlib import Path

import media
import torch
from one_side import num_usable_cores, print_line
from torch.utils.data import DataLoader, Dataset, IterableDataset


def dataset_of(case: str, num: int) -> tuple[Dataset, int]:
    """The case's dataset of `num` samples, some of the same file, and its batch size."""

    def some(files: list[Path]) -> list[Path]:
        return list(itertools.islice(itertools.cycle(files), num))

    if case.startswith(("images", "photos", "resize", "decoders")):
        import remembered_photos

        return remembered_photos.photos(case, some(remembered_photos.files_of(case))), 64
    if case.startswith("mel"):
        from remembered_sounds import Sounds

        return Sounds(some(sorted(media.sounds().glob("*.wav"))), augment=case == "mel"), 16
    if case == "volumes":
        from remembered_scans import Volumes

        return Volumes(some(sorted(media.volumes().glob("*.nii.gz")))), 2
    if case == "volumes-monai":
        from remembered_monai import volumes

        return volumes(some(sorted(media.volumes().glob("*.nii.gz")))), 2
    if case == "scans":
        from remembered_scans import Scans

        return Scans(some(sorted(each for each in media.scans().iterdir() if each.is_dir()))), 2
    if case == "tiles":
        from remembered_scans import Tiles

        return Tiles(some(sorted(media.tiles().glob("*.tif")))), 8
    from remembered_videos import Videos

    return Videos(some(sorted(media.videos().glob("*.mp4")))), 2


def loader_of(case: str) -> type[DataLoader]:
    """MONAI's own for its case: it seeds the transforms and collates what images tell of themselves."""
    if case != "volumes-monai":
        return DataLoader
    from monai.data import DataLoader as Monais

    return Monais


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", required=True)
    parser.add_argument("--num-workers", type=int, default=num_usable_cores(), metavar="W")
    parser.add_argument("--num-samples", type=int, required=True, help="in an epoch")
    parser.add_argument("--num-epochs", type=int, default=6)
    parser.add_argument("--num-later", type=int, default=3, help="last epochs that are counted")
    flags = parser.parse_args()
    dataset, batch_size = dataset_of(flags.case, flags.num_samples)
    torch.manual_seed(0)
    kind, shuffle = loader_of(flags.case), not isinstance(dataset, IterableDataset)
    loader = kind(dataset, batch_size=batch_size, shuffle=shuffle, num_workers=flags.num_workers)
    rates = []
    for _ in range(flags.num_epochs):
        began_s = time.perf_counter()
        for _ in loader:
            pass
        rates.append(len(dataset) / (time.perf_counter() - began_s))
    later = statistics.median(rates[-flags.num_later :])
    print_line({"first_per_s": rates[0], "later_per_s": later, "rates": rates})


if __name__ == "__main__":
    main()
