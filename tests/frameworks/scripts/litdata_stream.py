"""litdata's StreamingDataset on a local folder."""

from pathlib import Path

import material
import torch
from litdata import StreamingDataLoader, StreamingDataset
from litdata.streaming.cache import Cache
from torch.utils.data import DataLoader


def make_chunks(folder: Path) -> str:
    """What litdata's optimize writes, written in this process."""
    folder.mkdir()
    cache = Cache(str(folder), chunk_bytes=1 << 20)
    for index in range(160):
        cache[index] = {
            "picture": material.picture_of(index),
            "label": index % material.NUM_CLASSES,
        }
    cache.done()
    cache.merge()
    return str(folder)


def pairs(samples: list[dict]):
    return torch.utils.data.default_collate([(one["picture"], one["label"]) for one in samples])


def main() -> None:
    material.begin()
    folder = make_chunks(Path("chunks"))
    model, settings = material.Tiny(), {"batch_size": 16, "num_workers": 2, "collate_fn": pairs}
    for kind in (DataLoader, StreamingDataLoader):
        dataset = StreamingDataset(folder, shuffle=True, seed=7)
        material.train(kind(dataset, **settings), model)
    material.end()


if __name__ == "__main__":
    main()
