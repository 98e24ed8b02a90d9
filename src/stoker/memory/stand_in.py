"""Stands in for a worker's dataset: samples come from the shelf, or from the dataset and then go there.

Promise: only its fetcher meets the stand-in; torch's own wrappers run their own code on it, and
whatever else asks for the dataset gets the script's.
Owner: the worker's main thread.
"""

import contextlib
import functools
import operator
from collections.abc import Callable
from typing import Any, Protocol

from torch.utils.data import ConcatDataset, Subset, default_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from stoker.memory.desk import Desk, tally_of
from stoker.memory.place import Place
from stoker.memory.store import Rows, ShelfAccess


class Decoding(Protocol):
    """Remembers what decoders make of files, where samples themselves are not remembered."""

    def switch_on(self) -> None:
        """From here on, for an iterable; called again, take in what was imported meanwhile."""

    def during(self, make: Callable[..., Any], *arguments: Any) -> Any:
        """Return what `make` returns, or raise what it raises."""


class Memory:
    """Makes stand-ins for a worker's datasets."""

    def __init__(
        self,
        access: ShelfAccess,
        is_only_worker: bool,
        decoding: Callable[[Desk], Decoding] | None = None,
    ) -> None:
        """is_only_worker: no other worker makes the loader's samples."""
        self._desk = Desk(access, is_only_worker)
        self._decoding = None if decoding is None else decoding(self._desk)
        if self._decoding is not None:
            self._desk.make_alone = functools.partial(self._decoding.during, operator.getitem)
        self._is_for_iterable = self._is_for_torchs_collate = False

    def begin_iterable(self) -> None:
        """Remember what decoders make of files, for an iterable, of which nothing else can be."""
        self._is_for_iterable = True
        self.look()

    def look(self) -> None:
        """Take in what an iterable has imported since the last look, and what the script has told torch's
        collate."""
        if self._is_for_torchs_collate and not _collates_as_torch():
            self._desk.copies = True
        if self._is_for_iterable and self._decoding is not None:
            with contextlib.suppress(Exception):  # ours
                self._decoding.switch_on()

    def around(self, dataset: Any, collate: Callable[[Any], Any]) -> Any:
        """Return what stands in for a dataset. collate: the job's, which may change a sample."""
        self._is_for_torchs_collate = collate is default_collate
        self._desk.copies = collate is not default_collate
        self.look()
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
        with contextlib.suppress(Exception):  # ours
            self._desk.close()

    def offer(self, rows: Rows | None) -> None:
        """Have the next sample's tensors written where they are to lie in their batch, if they are
        like these rows: by their keys in the sample, from the outside in. What is in a row counts
        only if the row itself is found there in the sample. rows: empty if there are none yet;
        None if whoever asks for samples knows nothing of this."""
        self._desk.rows = None if self._desk.copies else rows

    def _around(self, dataset: Any, where: str) -> Any:
        """Return a stand-in. Of torch's own wrappers a copy, whose code runs as it would."""
        if type(dataset) is Subset:
            return like(dataset, dataset=self._around(dataset.dataset, where + ".dataset"))
        if type(dataset) is ConcatDataset:
            parts = dataset.datasets
            inner = [self._around(each, f"{where}.datasets[{k}]") for k, each in enumerate(parts)]
            return like(dataset, datasets=inner)
        if getattr(dataset, "__getitems__", None) is not None:
            tally_of(self._desk, dataset, where).say_why("makes several samples at once")
            return dataset if self._decoding is None else Several(self._decoding, dataset)
        if getattr(type(dataset), "__getitem__", None) is None:
            return dataset
        return Remembering(Place(self._desk, dataset, where))


def _collates_as_torch() -> bool:
    """Whether no script has told torch's collate what to do with a type: that may change a sample."""
    module = default_collate.__module__
    return all(each.__module__ == module for each in default_collate_fn_map.values())


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


class Several:
    """In place of a dataset that makes several samples at once, and so is not remembered itself."""

    def __init__(self, decoding: Decoding, dataset: Any) -> None:
        self._decoding, self._dataset = decoding, dataset

    def __getitem__(self, index: Any) -> Any:
        return self._decoding.during(operator.getitem, self._dataset, index)

    def __getitems__(self, indices: Any) -> Any:
        return self._decoding.during(self._dataset.__getitems__, indices)
