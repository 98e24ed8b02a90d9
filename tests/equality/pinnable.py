"""Datasets and batch types for loaders with pin_memory=True, and what torch leaves behind of these."""

import atexit
import multiprocessing
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter


def end_torchs_workers() -> None:
    """torch does not wait for workers that it terminates, and up to 2.12 keeps persistent ones until the
    process ends, where memory is pinned (dataloader.py)."""
    atexit.unregister(getattr(_MultiProcessingDataLoaderIter, "_clean_up_worker", None))
    multiprocessing.active_children()  # which reaps those that have ended


class Samples(Dataset):
    """Random draws and what depends on the index, so that a wrong batch shows."""

    def __init__(self, shape: tuple[int, ...], length: int = 24) -> None:
        self.shape = shape
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.rand(self.shape) + index, "y": index, "name": str(index)}


class Fails(Samples):
    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 9:
            raise ValueError(f"sample {index} is broken")
        return super().__getitem__(index)


class Own:
    """A batch type that knows how to pin itself, as in torch's documentation."""

    def __init__(self, samples: list[dict[str, Any]]) -> None:
        self.x = torch.stack([sample["x"] for sample in samples])
        self.num_pinned = 0

    def pin_memory(self) -> "Own":
        self.x = self.x.pin_memory()
        self.num_pinned += 1
        return self


class Unpinnable(Own):
    def pin_memory(self) -> "Own":
        raise OSError("no pinned memory for this one")


# Datasets and collate functions whose batches fail, and with what.
BROKEN = [(Fails((4,)), None, ValueError), (Samples((4,)), Unpinnable, OSError)]
BROKEN_IDS = ["in the dataset", "in pin_memory()"]


def first_words(error: type[Exception]) -> Any:
    """Return a loop that yields the first line of the error that a loader ends in."""

    def run(loader: Any) -> Any:
        with pytest.raises(error) as caught:
            list(loader)
        yield str(caught.value).partition("\n")[0]

    return run
