"""Reads the files of a folder in a loader, and prints a digest of each batch.

usage: reads_mount.py FOLDER KIND EPOCHS NUM_WORKERS [WAIT_AFTER]      WAIT_AFTER: tells and waits, after that batch
"""

import hashlib
import os
import random
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset


class Listed(Dataset):
    """Has a list of its files, as ImageFolder has."""

    def __init__(self, root):
        self.samples = [
            (str(Path(folder, name)), len(name))
            for folder, _, names in sorted(os.walk(root))
            for name in sorted(names)
            if name.endswith(".bin")
        ]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        path, label = self.samples[index]
        data = Path(path).read_bytes()
        time.sleep(float(os.environ.get("SAMPLE_S", 0)))  # so that hosts come to it, too
        return digest(data), label, len(data), random.random()


class Opens(Dataset):
    """Opens files by names that it makes itself."""

    def __init__(self, root):
        self.root, self.num = root, len(list(Path(root, "c0").iterdir()))

    def __len__(self):
        return self.num

    def __getitem__(self, index):
        data = b"".join(
            path.read_bytes() for path in sorted(Path(self.root, "c0").iterdir())[index : index + 2]
        )
        return digest(data), torch.rand(()).item()


class Mapped(Dataset):
    """Maps one large file."""

    def __init__(self, root):
        self.rows = np.load(Path(root, "rows.npy"), mmap_mode="r")

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return torch.from_numpy(self.rows[index].copy()), random.random()


class Tars(IterableDataset):
    """Reads shards from their beginning to their end."""

    def __init__(self, root):
        self.shards = sorted(str(path) for path in Path(root).glob("*.tar"))

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        for shard in self.shards[info.id :: info.num_workers] if info else self.shards:
            with tarfile.open(shard, "r|") as opened:
                for member in opened:
                    yield digest(opened.extractfile(member).read()), len(member.name)


def digest(data):
    return torch.frombuffer(bytearray(hashlib.sha256(data).digest()), dtype=torch.uint8)


def tell(text):
    os.write(int(os.environ["TELL_FD"]), text.encode() + b"\n")


def main():
    root, kind, epochs, num_workers = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    wait_after = int(sys.argv[5]) if len(sys.argv) > 5 else -1
    torch.manual_seed(3)
    random.seed(3)
    if kind == "mapped":
        torch.multiprocessing.set_start_method(
            "fork"
        )  # others are sent its rows, not where they lie
    dataset = {"listed": Listed, "opens": Opens, "mapped": Mapped, "tars": Tars}[kind](root)
    shuffle = None if kind == "tars" else True
    loader = DataLoader(dataset, batch_size=8, shuffle=shuffle, num_workers=num_workers)
    for epoch in range(epochs):
        for k, batch in enumerate(loader):
            parts = b"".join(part.numpy().tobytes() for part in batch)
            print(epoch, k, hashlib.sha256(parts).hexdigest()[:16], flush=True)
            if epoch == 0 and k == wait_after:
                tell("waits")
                sys.stdin.readline()
    tell("done")


if __name__ == "__main__":
    main()
