"""Copies samples into their batch as they come, instead of stacking them when the last is there.

torch keeps all samples of a batch and then stacks them: by then they have left the caches, and each
lies in memory twice. Moved at once, a sample is read where it was just written, and its memory
serves the next one. Measured: docs/decisions/007-samples-move-early.md

Promise: a sample is moved only if nothing can tell: nothing but the batch holds it, and torch's
default_collate would have copied it; any other stays as it was among the others, and collate makes
of them what it would have made.
Owner: the worker's main thread.
Source: torch/utils/data/_utils/fetch.py `_MapDatasetFetcher`, 2.13.
"""

import ctypes
import sys
import weakref
from collections.abc import Sized
from operator import is_
from typing import Any

import torch
from torch.utils.data import Subset, _DatasetKind, default_collate
from torch.utils.data._utils.fetch import _MapDatasetFetcher

from stoker.memory.stand_in import Memory, like
from stoker.wire.stream_copy import StreamCopy, stream_copy
from stoker.worker.collate import is_like, is_worth_moving, is_worth_streaming, room_for
from stoker.worker.job import Job

# A batch of which nothing could be moved: the next look comes a batch later, then three, seven...
MAX_TO_SKIP = 255
MAX_DEPTH = 3  # of containers, as in (image, {"mask": mask})

Where = tuple[object, ...]  # a tensor in its sample: keys, from the outside in


class _Place:
    """A tensor of the batch, its rows, and the samples that lie in it already. lent: the next row, as a
    tensor of its own, if it was lent to whoever makes the sample."""

    def __init__(self, whole: torch.Tensor) -> None:
        self.whole = whole
        self.rows = whole.unbind()
        self.views: list[torch.Tensor] = []
        self.lent: torch.Tensor | None = None
        self._traces: tuple[object, ...] = ()  # of what was lent

    def lend(self) -> torch.Tensor:
        """Return the next row as a tensor with a storage of its own: who copies or saves it takes no
        more than the row."""
        row = self.rows[len(self.views)]
        memory = (ctypes.c_char * row.nbytes).from_address(row.data_ptr())
        memory.whole = self.whole  # type: ignore[attr-defined]  # for as long
        storage = torch.frombuffer(memory, dtype=row.dtype).untyped_storage()
        # No view of another tensor: of one torch refuses to detach it in place.
        self.lent = torch.empty(0, dtype=row.dtype, device="cpu").set_(
            storage, 0, row.shape, row.stride()
        )
        self._traces = _traces(self.lent)
        return self.lent

    def takes_back(self, num_more: int) -> bool:
        """Whether what was lent is as it was, and nothing holds it but whoever does `num_more` times by
        right."""
        lent, self.lent = self.lent, None
        assert lent is not None
        row = self.rows[len(self.views)]
        is_same = is_like(lent, row) and lent.data_ptr() == row.data_ptr()
        return (
            sys.getrefcount(lent) == _LENT + num_more and is_same and _traces(lent) == self._traces
        )

    def is_made_of(self, samples: Any) -> bool:
        num = len(self.views)
        return num == len(self.whole) == len(samples) and all(map(is_, samples, self.views))


class Early:
    """Fetches batches as torch's fetcher does, and stands in for its dataset meanwhile."""

    def __init__(self, copy: StreamCopy | None = stream_copy) -> None:
        self._copy = copy
        self._fetcher: Any = None
        self._dataset: Any = None  # whose samples are moved
        self._given: Any = None  # the fetcher's own
        self._shown: Any = self  # in place of it, while a batch is fetched
        self._memory: Memory | None = None
        self._offered: dict[Where, torch.Tensor] = {}  # rows that the next sample may be made in
        self._places: dict[Where, _Place] = {}
        self._num_wanted = 0  # samples of the batch
        self._num_seen = 0
        self._was_used = False
        self._num_to_skip = self._num_left_to_skip = 0
        self._unseen = _traces(torch.empty(1, device="cpu"))

    def around(
        self, fetcher: Any, job: Job, dataset: Any = None, memory: Memory | None = None
    ) -> Any:
        """Return self if samples of this job may be moved; else the fetcher as it is. dataset: what
        stands in for the job's; memory: whose stand-in it is, if there is one."""
        may_move = (
            job.dataset_kind == _DatasetKind.Map
            and type(fetcher) is _MapDatasetFetcher
            and job.auto_collation
            and job.collate_fn is default_collate
        )
        self._fetcher, self._memory = fetcher, memory
        self._given = self._dataset = job.dataset if dataset is None else dataset
        if memory is not None and type(job.dataset) is Subset:
            # torch's Subset asks for samples one by one, and goes on to do so.
            self._dataset = self._given.dataset
            self._shown = like(self._given, dataset=self)
            asks_for_many = getattr(job.dataset.dataset, "__getitems__", None)
        else:
            asks_for_many = getattr(job.dataset, "__getitems__", None)
        return self if may_move and not asks_for_many else fetcher

    def fetch(self, indices: Any) -> Any:
        """Return or raise what `fetcher.fetch` does."""
        fetcher = self._fetcher
        if self._num_left_to_skip:
            self._num_left_to_skip -= 1
            return fetcher.fetch(indices)
        if not isinstance(indices, Sized):
            return fetcher.fetch(indices)
        self._num_wanted, self._num_seen, self._was_used = len(indices), 0, False
        fetcher.dataset = self._shown
        try:
            return fetcher.fetch(indices)
        finally:
            fetcher.dataset = self._given
            self._places.clear()
            self._offered = {}
            if self._memory is not None:
                self._memory.offer(None)
            self._num_to_skip = 0 if self._was_used else min(2 * self._num_to_skip + 1, MAX_TO_SKIP)
            self._num_left_to_skip = self._num_to_skip

    def batch_of(self, samples: Any) -> torch.Tensor | None:
        """Return the batch that these samples have become already; None if they have not."""
        for place in self._places.values():
            if place.is_made_of(samples):
                self._was_used = True
                return place.whole
        return None

    def __getitem__(self, index: Any) -> Any:
        if self._memory is not None:
            self._offer(self._memory)
        holder: list[Any] = [self._dataset[index]]
        if self._places or not self._num_seen:
            self._move(holder, 0, ())
        self._num_seen += 1
        for where, place in tuple(self._places.items()):
            if place.lent is not None and not place.takes_back(0):
                del self._places[where]
        return holder[0]

    def room_for_sample(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor | None:
        """Lend the row of the batch where the sample that is being made will lie, if it has a tensor
        of this kind: what is made there need not be copied. Whatever becomes of it, the batch
        holds what the sample holds. None if there is no such row."""
        for place in self._places.values():
            if (
                place.lent is None
                and self._num_seen == len(place.views) < len(place.rows)
                and place.whole.dtype is dtype
                and tuple(place.whole.shape[1:]) == shape
            ):
                return place.lend()
        return None

    def _offer(self, memory: Memory) -> None:
        """Tell where the next sample's tensors are to lie, of those that have moved so far."""
        number = self._num_seen
        if number and not self._places:
            memory.offer(None)
            return
        self._offered = {
            where: place.rows[number]
            for where, place in self._places.items()
            if number == len(place.views) < len(place.rows)
        }
        memory.offer(self._offered)

    def _move(self, holder: Any, key: Any, where: Where) -> None:
        """Move the tensors of holder[key], except those that something else holds too."""
        place = self._places.get(where)
        if place is not None and place.lent is not None:
            is_there = holder[key] is place.lent
            if not place.takes_back(int(is_there)):
                del self._places[where]  # somebody keeps it: the batch is to have memory of its own
                return
            if is_there:
                place.views.append(holder[key])
                return
        row = self._offered.get(where)
        if row is not None and holder[key] is row:
            self._places[where].views.append(row)
            return
        if _num_holders(holder, key) != _ALONE:
            return
        kind = type(holder[key])
        if kind is torch.Tensor:
            holder[key] = self._moved(holder[key], where)
        elif kind is dict and len(where) < MAX_DEPTH:
            for inner in holder[key]:
                self._move(holder[key], inner, (*where, inner))
        elif (kind is list or kind is tuple) and len(where) < MAX_DEPTH:
            items = list(holder[key])
            holder[key] = None  # now the new list alone holds what only the old container held
            for number in range(len(items)):
                self._move(items, number, (*where, number))
            holder[key] = kind(items)

    def _moved(self, sample: torch.Tensor, where: Where) -> torch.Tensor:
        """Return the view in the batch that the sample was copied to; or the sample itself."""
        number, num = self._num_seen, self._num_wanted
        if number == 0 and self._is_worth(sample, num) and _traces(sample) == self._unseen:
            self._places[where] = _Place(room_for(sample, num))
        place = self._places.get(where)
        if place is None or number != len(place.views):
            return sample
        view = place.rows[number]
        if not is_like(sample, view) or _traces(sample) != self._unseen:
            return sample
        assert self._copy is not None
        self._copy(view.data_ptr(), (sample.data_ptr(),), view.nbytes)
        place.views.append(view)
        return view

    def _is_worth(self, sample: torch.Tensor, num: int) -> bool:
        if self._memory is not None and self._memory.serves:
            return is_worth_moving(sample, num)
        return is_worth_streaming(sample, num)


def _num_holders(holder: Any, key: Any) -> int:
    return sys.getrefcount(holder[key])


def _traces(tensor: torch.Tensor) -> tuple[object, ...]:
    """Return what tells a tensor whose memory nothing else views, and which nobody would miss."""
    storage = tensor.untyped_storage()
    return (
        tensor._use_count(),  # type: ignore[attr-defined]  # of holders in C++
        torch._C._storage_Use_Count(storage._cdata),
        sys.getrefcount(storage),
        storage.resizable(),  # not lent by NumPy or another library, nor to one
        storage.is_shared(),  # with another process
        weakref.getweakrefcount(tensor),
        weakref.getweakrefcount(storage),
        not tensor.__dict__,  # attributes of the user's
        not tensor._backward_hooks,
    )


def _num_of_local() -> int:
    lent = object()
    return sys.getrefcount(lent)


# Counts as Python and torch give them, which differ between versions, of what is surely alone.
_ALONE = _num_holders([object()], 0)
_LENT = _num_of_local()
