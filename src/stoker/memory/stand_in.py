"""Stands in for a worker's dataset: samples come from the shelf, or from the dataset and then go there.

Promise: only its fetcher meets the stand-in; torch's own wrappers run their own code on it, and
whatever else asks for the dataset gets the script's.
Owner: the worker's main thread.
"""

from collections.abc import Callable
from typing import Any

from torch.utils.data import ConcatDataset, Subset, default_collate, default_convert

from stoker.memory.place import Desk, Place
from stoker.memory.store import Rows, ShelfAccess


class Memory:
    """Makes stand-ins for a worker's datasets."""

    def __init__(self, access: ShelfAccess, is_only_worker: bool) -> None:
        """is_only_worker: no other worker makes the loader's samples."""
        self._desk = Desk(access, is_only_worker)
        self._places: list[Place] = []

    def around(self, dataset: Any, collate: Callable[[Any], Any]) -> Any:
        """Return what stands in for a dataset. collate: the job's, which may change a sample."""
        self._desk.copies = collate is not default_collate and collate is not default_convert
        try:
            return self._around(dataset, "")
        except Exception:  # ours: there is no place yet that it could be told of
            return dataset

    @property
    def serves(self) -> bool:
        """Whether a sample came from the shelf already."""
        return self._desk.serves

    def close(self) -> None:
        """Count what is not counted yet."""
        for place in self._places:
            place.close()

    def offer(self, rows: Rows | None) -> None:
        """Have the next sample's tensors written where they are to lie in their batch, if they are
        like these rows: by their keys in the sample, from the outside in. What is in a row counts
        only if the row itself is found there in the sample. rows: empty if there are none yet;
        None if whoever asks for samples knows nothing of this."""
        self._desk.rows = rows

    def _around(self, dataset: Any, where: str) -> Any:
        """Return a stand-in. Of torch's own wrappers a copy, whose code runs as it would."""
        if type(dataset) is Subset:
            return like(dataset, dataset=self._around(dataset.dataset, where + ".dataset"))
        if type(dataset) is ConcatDataset:
            parts = dataset.datasets
            inner = [self._around(each, f"{where}.datasets[{k}]") for k, each in enumerate(parts)]
            return like(dataset, datasets=inner)
        function = getattr(type(dataset), "__getitem__", None)
        if function is None or getattr(dataset, "__getitems__", None) is not None:
            return dataset
        self._places.append(Place(self._desk, dataset, where))
        return Remembering(self._places[-1])


def like(dataset: Any, /, **changed: object) -> Any:
    """Return one of torch's wrappers with another dataset inside."""
    made = object.__new__(type(dataset))
    vars(made).update(vars(dataset) | changed)
    return made


class Remembering:
    """In place of a dataset, for its fetcher alone."""

    def __init__(self, place: Place) -> None:
        self._get = place.get

    def __getitem__(self, index: Any) -> Any:
        return self._get(index)
