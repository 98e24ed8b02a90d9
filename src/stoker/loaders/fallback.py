"""Turns an iterator of ours that failed before its first batch into torch's own.

Promise: the script gets what torch would have given it: the same seeds, the same index lists,
beginning with those already drawn, and generators in the state in which torch would leave them.
Owner: the thread that iterates.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data.dataloader import (
    DataLoader,
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from stoker import stack


class _Made(_BaseDataLoaderIter):
    """Stands between torch's iterator and its base, whose __init__ has run already: so no seed is
    drawn, no sampler asked and no process group made a second time."""

    _drawn: list[Any] | None = None

    def __init__(self, loader: DataLoader[Any]) -> None:
        return

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        if self._drawn is None:
            super()._reset(loader, first_iter)
        else:
            self._sampler_iter = itertools.chain(self._drawn, self._sampler_iter)


class _MultiProcessing(_MultiProcessingDataLoaderIter, _Made):
    pass


class _SingleProcess(_SingleProcessDataLoaderIter, _Made):
    pass


_NOT_TORCHS = (
    "_driver", "_state", "_pinner", "_options", "_job", "_teller", "_workers_seed", "owner_thread",
    "is_theirs",
)  # fmt: skip


class Attempt:
    """Keeps what it takes to give a loader back to torch, from iter() to the first batch.

    iterator: ours, as soon as it exists, finished or not.
    """

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.iterator: Any = None
        self.loader = loader
        held = getattr(loader, "__dict__", {})  # not by getattr, which a class may answer itself
        self._is_stateful = "snapshot_every_n_steps" in held
        self._saved = held.get("next_iter_state")
        generators = {torch.default_generator, loader.generator}
        if self._is_stateful:  # torchdata's samplers bring their own
            generators.update(_generators_of(held.get("sampler"), held.get("batch_sampler")))
        self._states = [(each, each.get_state()) for each in generators if each is not None]

    @property
    def is_theirs(self) -> bool:
        """Whether what our iterator raised is torch's error or the script's; see StreamIterator."""
        return bool(getattr(self.iterator, "is_theirs", False))

    def hand_over(self, original: Callable[[DataLoader[Any]], Any]) -> Any:
        """Return torch's own iterator. original: torch's function, which makes one from scratch."""
        self._stop()
        iterator, loader = self.iterator, self.loader
        if not hasattr(iterator, "_base_seed") or self._is_stateful:
            self._put_back()
            return original(loader)
        self._adopt()
        return iterator

    def become_torchs(self) -> None:
        """Turn our iterator, which the script has already, into torch's."""
        self._stop()
        if self._is_stateful:
            self._begin_again()
        else:
            self._adopt()

    def _stop(self) -> None:
        if getattr(self.iterator, "_driver", None) is not None:
            with contextlib.suppress(Exception):  # it is what failed
                self.iterator._close(0.0)

    def _put_back(self) -> None:
        for generator, state in self._states:
            generator.set_state(state)

    def _adopt(self) -> None:
        iterator, loader = self.iterator, self.loader
        in_process = loader.num_workers == 0
        drawn = iterator.__dict__.get("_drawn")
        trainers_seed = iterator._shared_seed
        iterator._shared_seed = iterator.__dict__.get("_workers_seed", trainers_seed)
        for name in _NOT_TORCHS:
            iterator.__dict__.pop(name, None)
        iterator._num_workers = loader.num_workers
        if in_process and drawn:
            iterator._sampler_iter = itertools.chain(drawn, iterator._sampler_iter)
        kind: Any = _SingleProcessDataLoaderIter if in_process else _MultiProcessingDataLoaderIter
        iterator._profile_name = f"enumerate(DataLoader)#{kind.__name__}.__next__"
        iterator.__class__ = made = _SingleProcess if in_process else _MultiProcessing
        stack.standing_at(DataLoader._get_iterator, kind.__name__)(made.__init__, iterator, loader)
        iterator.__class__ = kind
        iterator.__dict__.pop("_drawn", None)
        iterator._shared_seed = trainers_seed

    def _begin_again(self) -> None:
        """Draw again what was drawn: torchdata keeps the sampler's state of each draw."""
        from torchdata.stateful_dataloader import stateful_dataloader as theirs

        now = torch.get_rng_state()
        self._put_back()
        iterator = self.iterator
        meter = iterator.__dict__.get("_stoker_meter")
        iterator.__dict__.clear()
        iterator.__class__ = theirs._StatefulMultiProcessingDataLoaderIter
        iterator.__init__(self.loader, self._saved)
        iterator._stoker_meter = meter
        torch.set_rng_state(now)  # the script may have drawn from it since


def _generators_of(*samplers: Any) -> Iterator[torch.Generator]:
    for sampler in samplers:
        held = getattr(sampler, "__dict__", {})
        yield from (each for each in held.values() if isinstance(each, torch.Generator))
        if held.get("sampler") is not None:
            yield from _generators_of(held["sampler"])
