"""Saves points of an iterable that has a state_dict: a replacement worker may go on from there.

`state_dict` and `load_state_dict` are their author's word, and some forget a thing (Hugging Face's
datasets: what a shuffle buffer holds). So a state counts only together with the batches that came
after it: a replacement that does not make them again, to the bit, is thrown away, and the next one
fetches everything from the start.

Promise: saving moves none of the three generators.
Source of what has a state, and of the order of putting it back: `_make_state_dict` and
`_worker_loop` of torchdata/stateful_dataloader/worker.py, 0.11.
Owner: the worker's main thread.
"""

import hashlib
from typing import Any, cast

from torch._utils import ExceptionWrapper

from stoker.clock import now_s
from stoker.scheduler.tasks.point import SavedPoint
from stoker.wire.batch_codec import dumps, loads
from stoker.worker.seeding import restore_generators, save_generators

# Chosen, not measured. To fetch a minute's work again is soon done, and surely right.
FIRST_SAVE_S = 60.0
SAVE_EVERY_S = 10.0
SAVE_FRAC = 0.01  # of the work, at most
MAX_STATE_NBYTES = 128 << 10  # goes through a socket, beside a batch; a place is seldom larger
NUM_PROOFS = 2


class Saver:
    """Saves points of one iterable now and then; is told of each of its batches."""

    def __init__(self) -> None:
        self._work_s = 0.0
        self._next_save_s = FIRST_SAVE_S
        self._spent_s = 0.0  # on the point that is pending
        self._pending: SavedPoint | None = None  # its proofs are not complete

    def heard(self, fetcher: Any, dataset: Any, batch: Any, task_s: float) -> SavedPoint | None:
        """Return a point that covers this batch, if one is complete with it; else None."""
        self._work_s += task_s
        began_s = now_s()
        if self._pending is None and self._work_s < self._next_save_s:
            return None
        point = None
        generators = save_generators()
        try:
            if isinstance(batch, ExceptionWrapper):
                self._pending = None
            elif self._pending is None:
                state = _state_of(fetcher.dataset_iter, dataset)
                self._pending = SavedPoint(state, generators, ())
            else:
                point = self._proven(self._pending, batch, fetcher.dataset_iter, dataset)
        except Exception:  # it wants arguments, cannot be pickled, fails, does not tell where it is
            self._pending, self._next_save_s = None, float("inf")
        restore_generators(generators)
        self._spent_s += now_s() - began_s
        if point is not None:
            self._next_save_s = self._work_s + max(SAVE_EVERY_S, self._spent_s / SAVE_FRAC)
            self._spent_s = 0.0
        return point

    def _proven(
        self, point: SavedPoint, batch: Any, iterator: Any, dataset: Any
    ) -> SavedPoint | None:
        """Add a proof; return the point if it was the last. Raises ValueError if nothing moved."""
        point = point._replace(proofs=(*point.proofs, proof_of(batch)))
        if len(point.proofs) < NUM_PROOFS:
            self._pending = point
            return None
        if _state_of(iterator, dataset) == point.state:
            raise ValueError("its state does not tell where it is")  # a module's, say
        self._pending = None
        return point


def has_state(value: Any) -> bool:
    """Whether a value keeps to torchdata's protocol `Stateful`."""
    try:
        return callable(value.state_dict) and callable(value.load_state_dict)
    except Exception:  # also of a __getattr__ of the author's
        return False


def _state_of(iterator: Any, dataset: Any) -> bytes:
    """Encode (dataset's state, iterator's state), None for one that has none.

    Raises whatever their author's code raises, and ValueError if the state is too large.
    """
    own = dataset.state_dict() if has_state(dataset) and iterator is not dataset else None
    state = dumps((own, iterator.state_dict() if has_state(iterator) else None))
    if len(state) > MAX_STATE_NBYTES:
        raise ValueError(f"a state of {len(state):,} bytes")
    return state


def load_dataset(point: SavedPoint, dataset: Any) -> Any:
    """Restore the dataset's state, before `iter(dataset)`. Returns the iterator's state."""
    own, iterators = cast(tuple[Any, Any], loads(point.state))
    if own is not None:
        dataset.load_state_dict(own)
    return iterators


def proof_of(batch: Any) -> bytes:
    """Return a digest of a batch and of the generators after it. Raises what pickling raises."""
    generators = save_generators()
    digest = hashlib.sha256(generators)
    digest.update(dumps(batch))
    restore_generators(generators)
    return digest.digest()
