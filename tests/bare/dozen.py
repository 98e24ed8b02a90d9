"""A dozen loaders and more with nothing but torch, each told as one line: its batches, or what it raised.

A plain script. `--spawn`: the one whose workers are started anew too; `--large`: batches of 9 MiB.
"""

import hashlib
import random
import sys
import warnings
from collections import namedtuple

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

warnings.simplefilter("ignore")  # torch's own: that there is no NumPy

Pair = namedtuple("Pair", "x y")


class Maps(Dataset):
    def __init__(self, make, length=10):
        self.make, self.length = make, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return self.make(index)


class Stream(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        for index in range(worker.id, 9, worker.num_workers):
            yield torch.randn(3) + index


def drawn(index):
    return torch.rand(64, 64) + index, random.random()


def large(index):
    return torch.full((3, 512, 512), float(index))


def failing(index):
    if index == 6:
        raise KeyError(f"sample {index}")
    return index


def in_dicts(index):
    return {"x": torch.ones(index % 2 + 1)[:1], "y": index}


def strings(index):
    return f"sample {index}", b"raw"


def pairs(index):
    return Pair(torch.ones(2) * index, index)


def longer(index):
    return torch.ones(index + 1)


def dropping(samples):
    kept = [sample for sample in samples if sample % 4]
    return torch.tensor(kept) if len(kept) > 2 else None


def longest(samples):
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)


def numbered(worker_id):
    torch.manual_seed(worker_id)


def as_lists(value):
    if isinstance(value, torch.Tensor):
        return (
            str(value.dtype),
            tuple(value.shape),
            value.double().sum().item(),
            value.flatten()[:64].tolist(),
        )
    if isinstance(value, dict):
        return {key: as_lists(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [as_lists(item) for item in value]
    return value


def told(loader, num_epochs):
    torch.manual_seed(1)
    random.seed(2)
    digest, num = hashlib.sha256(), 0
    try:
        for _ in range(num_epochs):
            for batch in loader:
                digest.update(repr(as_lists(batch)).encode())
                num += 1
    except Exception as error:
        return f"{num} batches, {digest.hexdigest()}, {type(error).__name__}: {str(error).splitlines()[0]}"
    digest.update(repr((torch.get_rng_state().tolist(), random.getstate())).encode())
    return f"{num} batches, {digest.hexdigest()}"


LOADERS = {
    "workers": lambda: DataLoader(Maps(drawn), 4, shuffle=True, num_workers=2),
    "none": lambda: DataLoader(Maps(drawn), 4, shuffle=True),
    "iterable": lambda: DataLoader(Stream(), 2, num_workers=2),
    "kept": lambda: DataLoader(Maps(drawn), 3, num_workers=2, persistent_workers=True),
    "dicts": lambda: DataLoader(Maps(in_dicts), 3, num_workers=2),
    "strings": lambda: DataLoader(Maps(strings), 3, num_workers=2),
    "tuples": lambda: DataLoader(Maps(pairs), 3, num_workers=2),
    "no batch": lambda: DataLoader(Maps(int), 2, collate_fn=dropping, num_workers=2),
    "collate": lambda: DataLoader(Maps(longer), 3, collate_fn=longest, num_workers=2),
    "raises": lambda: DataLoader(Maps(failing), 2, num_workers=2),
    "one by one": lambda: DataLoader(Maps(drawn), None, num_workers=2),
    "init": lambda: DataLoader(Maps(drawn), 4, worker_init_fn=numbered, num_workers=2, prefetch_factor=1),
    "generator": lambda: DataLoader(
        Maps(drawn), 4, shuffle=True, generator=torch.Generator().manual_seed(3), num_workers=1
    ),
}  # fmt: skip
ASKED_FOR = {
    "--spawn": lambda: DataLoader(Maps(drawn), 4, num_workers=1, multiprocessing_context="spawn"),
    "--large": lambda: DataLoader(Maps(large), 4, num_workers=2),
}


def main():
    asked = {name: make for name, make in ASKED_FOR.items() if name in sys.argv}
    for name, make in (LOADERS | asked).items():
        print(f"{name}: {told(make(), 1 if name in asked else 2)}", flush=True)


if __name__ == "__main__":
    main()
