"""webdataset on tar shards."""

import io
import tarfile
from pathlib import Path

import material
import numpy as np
import torch
import webdataset
from torch.utils.data import DataLoader

NUM_SHARDS, NUM_IN_EACH = 4, 30


def make_shards(folder: Path) -> list[str]:
    photos = sorted(material.make_photos(folder / "photos", NUM_SHARDS * NUM_IN_EACH).glob("*/*"))
    photos.sort(key=lambda file: file.name)
    shards = [str(folder / f"shard{number}.tar") for number in range(NUM_SHARDS)]
    for number, shard in enumerate(shards):
        with tarfile.open(shard, "w") as tar:
            for index in range(number * NUM_IN_EACH, (number + 1) * NUM_IN_EACH):
                add(tar, f"{index:04}.jpg", photos[index].read_bytes())
                add(tar, f"{index:04}.cls", str(index % material.NUM_CLASSES).encode())
    return shards


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def augment(image: np.ndarray) -> torch.Tensor:
    crop = torch.from_numpy(image[:64, :64].copy()).permute(2, 0, 1).float() / 255
    return crop + 0.1 * torch.randn_like(crop)


def main() -> None:
    material.begin()
    shards, model = make_shards(Path("shards")), material.Tiny()
    dataset = (
        webdataset.WebDataset(shards, shardshuffle=4, seed=7, empty_check=False)
        .shuffle(20, seed=7)
        .decode("rgb8")
        .to_tuple("jpg", "cls")
        .map_tuple(augment, lambda label: label)
        .batched(16)
    )
    material.train(DataLoader(dataset, batch_size=None, num_workers=2), model)
    loader = webdataset.WebLoader(dataset, batch_size=None, num_workers=2)
    material.train(loader.unbatched().shuffle(40, seed=7).batched(16), model)
    material.end()


if __name__ == "__main__":
    main()
