"""Points of an iterable that can save its own state: from there a replacement may go on.

`state_dict` and `load_state_dict` are their author's word, and some forget a thing (Hugging Face's
datasets: what a shuffle buffer holds). So a state counts only together with the batches that came
after it: a replacement that does not make them again, to the bit, is thrown away, and the next
one fetches everything from the start.

Promise: saving moves none of the three generators.
Source of what has a state, and of the order of putting it back: `_make_state_dict` and
`_worker_loop` of torchdata/stateful_dataloader/worker.py, 0.11.
Owner: the worker's main thread.
"""

import hashlib
from dataclasses import dataclass
from typing import Any

from torch._utils import ExceptionWrapper

from stoker.clock import now_s
from stoker.wire.batch_codec import dumps, loads
from stoker.worker.seeding import restore_generators, save_generators

# To fetch this much again is soon done, and surely right: nothing is saved before.
FIRST_SAVE_S = 60.0
SAVE_EVERY_S = 10.0
SAVE_FRAC = 0.01  # of the work, at most
MAX_STATE_NBYTES = 16 << 20  # the trainer keeps one for each chain
NUM_PROOFS = 2


@dataclass(frozen=True, slots=True)
class SavedPoint:
    """Where an iterable was, before the batches that `proofs` are the digests of."""

    state: bytes
    generators: bytes
    proofs: tuple[bytes, ...]


class Saver:
    """Saves now and then. Hears of every batch of one iterable."""

    def __init__(self) -> None:
        self._work_s = 0.0
        self._next_save_s = FIRST_SAVE_S
        self._pending: SavedPoint | None = None  # its proofs are not complete

    def heard(self, fetcher: Any, dataset: Any, batch: Any, task_s: float) -> SavedPoint | None:
        """A point that covers this batch, if one is complete with it."""
        self._work_s += task_s
        if isinstance(batch, ExceptionWrapper):
            self._pending = None
        elif self._pending is not None:
            return self._proven(self._pending, batch)
        elif self._work_s >= self._next_save_s:
            self._save(fetcher, dataset)
        return None

    def _save(self, fetcher: Any, dataset: Any) -> None:
        began_s = now_s()
        generators = save_generators()
        try:
            state = dumps(_state_of(fetcher.dataset_iter, dataset))
            has_state = len(state) <= MAX_STATE_NBYTES
        except Exception:  # it wants arguments, cannot be pickled, fails
            has_state = False
        restore_generators(generators)
        if not has_state:
            self._next_save_s = float("inf")
            return
        self._pending = SavedPoint(state, generators, ())
        pause_s = max(SAVE_EVERY_S, (now_s() - began_s) / SAVE_FRAC)
        self._next_save_s = self._work_s + pause_s

    def _proven(self, point: SavedPoint, batch: Any) -> SavedPoint | None:
        try:
            proofs = (*point.proofs, proof_of(batch))
        except Exception:  # it cannot be pickled, so neither sent: the trainer will hear of it
            self._pending = None
            return None
        point = SavedPoint(point.state, point.generators, proofs)
        is_complete = len(proofs) == NUM_PROOFS
        self._pending = None if is_complete else point
        return point if is_complete else None


def has_state(value: Any) -> bool:
    """Whether it keeps to torchdata's protocol `Stateful`."""
    return all(callable(getattr(value, name, None)) for name in ("state_dict", "load_state_dict"))


def _state_of(iterator: Any, dataset: Any) -> tuple[Any, Any]:
    """(dataset's, iterator's), None where it has none."""
    own = dataset.state_dict() if has_state(dataset) and iterator is not dataset else None
    return own, iterator.state_dict() if has_state(iterator) else None


def load_dataset(point: SavedPoint, dataset: Any) -> Any:
    """Put the dataset's part back, before `iter(dataset)`. Returns the iterator's part."""
    own, iterators = loads(point.state)
    if own is not None:
        dataset.load_state_dict(own)
    return iterators


def proof_of(batch: Any) -> bytes:
    """Digest of a batch and of the generators after it. Raises what pickling raises."""
    return hashlib.sha256(dumps(batch) + save_generators()).digest()
