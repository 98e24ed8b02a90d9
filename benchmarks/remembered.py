"""How fast epochs are once deterministic work is remembered, and what the first one costs.

Plain scripts' datasets, one a --case; a batch is used by nobody. Prints first_per_s, of the first
epoch, and later_per_s, the median of the epochs behind those in which everything is kept.
A plain script: it runs the same under python and under stoker.
"""

import argparse
import statistics
import time

import media
import torch
from one_side import num_usable_cores, print_line
from torch.utils.data import DataLoader, Dataset, IterableDataset

NUM_WARM = 3  # epochs until everything is kept


def dataset_of(case: str) -> tuple[Dataset, int]:
    """The case's dataset and its batch size."""
    if case.startswith(("images", "photos", "resize", "decoders")):
        from remembered_photos import photos

        return photos(case), 64
    if case.startswith("mel"):
        from remembered_sounds import Sounds

        files = sorted(media.sounds().glob("*.wav")) * 8
        return Sounds(files, augment=case == "mel"), 16
    if case == "volumes":
        from remembered_scans import Volumes

        return Volumes(sorted(media.volumes().glob("*.nii.gz")) * 3), 2
    if case == "volumes-monai":
        from remembered_monai import volumes

        return volumes(sorted(media.volumes().glob("*.nii.gz")) * 3), 2
    if case == "scans":
        from remembered_scans import Scans

        folders = sorted(each for each in media.scans().iterdir() if each.is_dir())
        return Scans(folders * 8), 2
    if case == "tiles":
        from remembered_scans import Tiles

        return Tiles(sorted(media.tiles().glob("*.tif")) * 8), 8
    from remembered_videos import Videos

    return Videos(sorted(media.videos().glob("*.mp4")) * 2), 2


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
    parser.add_argument("--num-later", type=int, default=3, help="epochs that are counted")
    flags = parser.parse_args()
    dataset, batch_size = dataset_of(flags.case)
    torch.manual_seed(0)
    kind, shuffle = loader_of(flags.case), not isinstance(dataset, IterableDataset)
    loader = kind(dataset, batch_size=batch_size, shuffle=shuffle, num_workers=flags.num_workers)
    rates = []
    for _ in range(NUM_WARM + flags.num_later):
        began_s = time.perf_counter()
        for _ in loader:
            pass
        rates.append(len(dataset) / (time.perf_counter() - began_s))
    later = statistics.median(rates[NUM_WARM:])
    print_line({"first_per_s": rates[0], "later_per_s": later, "rates": rates})


if __name__ == "__main__":
    main()
