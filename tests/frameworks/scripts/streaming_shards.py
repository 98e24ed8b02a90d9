"""MosaicML's StreamingDataset on a local folder, under torch's DataLoader."""

from pathlib import Path

import material
import torch
from streaming import MDSWriter, StreamingDataset
from torch.utils.data import DataLoader


def make_shards(folder: Path) -> str:
    columns = {"picture": "ndarray:float32", "label": "int"}
    with MDSWriter(out=str(folder), columns=columns, size_limit=1 << 20) as writer:
        for index in range(160):
            picture = material.picture_of(index).numpy()
            writer.write({"picture": picture, "label": index % material.NUM_CLASSES})
    return str(folder)


def pairs(samples: list[dict]):
    return torch.utils.data.default_collate(
        [(one["picture"].copy(), one["label"]) for one in samples]
    )


def main() -> None:
    material.begin()
    folder = make_shards(Path("shards"))
    dataset = StreamingDataset(local=folder, shuffle=True, shuffle_seed=7, batch_size=16)
    loader = DataLoader(dataset, batch_size=16, num_workers=2, collate_fn=pairs)
    material.train(loader, material.Tiny())
    material.end()


if __name__ == "__main__":
    main()
