"""Finds out which sample and which function make a batch slow, in the worker that makes it.

A batch is slow if it takes three times as long as usual. From the first such one on the worker's thread is looked at while it
works, as the training thread is; of that one only the time and the indices are known.
Promise: calls nothing of the script's, not the `repr` of an index of its own kind either; keeps nothing of a sample.
"""

import collections
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from stoker.stalls.kinds import Frame
from stoker.stalls.sampler import Sampler

LEAST_S, TIMES = 0.05, 3.0  # of a slow batch: at least; of the usual time
NUM_USUAL, NUM_KNOWN = 32, 8  # batches by which that is known; at first
SHORT_EVERY = 16  # batches that cannot be slow
MAX_SHOWN = 3  # indices
_FETCH = "utils/data/_utils/fetch.py"  # of torch, 2.13: `[self.dataset[idx] for idx in possibly_batched_index]`
_OURS = f"{Path(__file__).parents[1]}/"


class Where(NamedTuple):
    """Says where a worker's thread was seen. sample: its index in words, if there is one; function: in which most is done;
    by: of the script's own, that called it."""

    sample: str
    function: str
    by: str


class SlowBatches:
    """Watches one worker's batches. start: has a sampler look at the thread that calls it; at_once: from the first batch on,
    since others of the loader's were slow."""

    def __init__(
        self, start: "Callable[[SlowBatches], Sampler | None]", at_once: bool = False
    ) -> None:
        self._start, self._at_once = start, at_once
        self._sampler: Sampler | None = None
        self._may_start = True
        self._usual: collections.deque[float] = collections.deque(maxlen=NUM_USUAL)
        self._usual_s = 0.0
        self._num_since = self._num_short = 0
        self.seen: dict[Where, float] = {}  # seconds, of the batch that is made

    def add(self, where: Where, seconds: float) -> None:
        """Note where the thread was; called by the sampler's."""
        self.seen[where] = self.seen.get(where, 0.0) + seconds

    def begin(self) -> None:
        """Note that a batch is begun."""
        if self._at_once:
            self._look()
        if self._sampler is not None:
            with contextlib.suppress(RuntimeError):  # no thread to be had
                self._sampler.start()  # it has ended before a fork of the dataset's
        self.seen = {}

    def took(self, batch_s: float, indices: object) -> str:
        """Return what made a batch slow, in words; empty if it was not."""
        if batch_s < LEAST_S and len(self._usual) == NUM_USUAL:
            self._num_short += 1
            if self._num_short % SHORT_EVERY:  # of many short ones a few tell what is usual
                return ""
        seen, self.seen = self.seen, {}  # a look that is under way adds to the new one
        usual_s = self._usual_s
        is_slow = batch_s > max(LEAST_S, TIMES * usual_s) and len(self._usual) >= NUM_KNOWN
        self._note(batch_s)
        if not is_slow:
            return ""
        self._look()
        return told(batch_s, usual_s, seen, indices)

    def _look(self) -> None:
        if self._may_start:
            self._may_start = False
            self._sampler = self._start(self)

    def _note(self, batch_s: float) -> None:
        self._usual.append(batch_s)
        self._num_since += 1
        if self._num_since >= NUM_KNOWN:  # a median costs 3 us
            self._num_since = 0
            self._usual_s = sorted(self._usual)[len(self._usual) // 2]


def told(batch_s: float, usual_s: float, seen: dict[Where, float], indices: object) -> str:
    """Put in words what made a batch slow. seen: may be empty."""
    whole = f"a batch in {batch_s:.2f} s, {usual_s:.3f} as a rule"
    if not seen:
        return f"{whole}: {_shown(indices)}"
    by_sample: dict[str, float] = {}
    for where, seconds in seen.items():
        by_sample[where.sample] = by_sample.get(where.sample, 0.0) + seconds
    sample, sample_s = max(by_sample.items(), key=lambda item: item[1])
    is_one = bool(sample) and 2 * sample_s > batch_s
    in_it = {where: s for where, s in seen.items() if not is_one or where.sample == sample}
    where = max(in_it, key=lambda each: in_it[each])
    by = f", called by {where.by}" if where.by and where.by != where.function else ""
    of = f"sample {sample} for {sample_s:.2f} s" if is_one else "no single sample"
    return f"{whole}: {of}, most of it in {where.function}{by}"


def _shown(indices: object) -> str:
    """Return what a batch was asked for by: a list of indices, or an index of a kind of its own."""
    if type(indices) is not list:
        return f"sample {_in_words(indices)}"
    shown = ", ".join(_in_words(index) for index in indices[:MAX_SHOWN])
    more = f" and {len(indices) - MAX_SHOWN} more" if len(indices) > MAX_SHOWN else ""
    return f"samples {shown}{more}"


def _in_words(index: object) -> str:
    """Return an index, of Python's own kinds; of others the kind's name: no code of the script's is run."""
    if type(index) is int:
        return str(index)
    if type(index) is str:
        return repr(index[:60])
    if type(index) is tuple and all(type(part) in (int, str) for part in index[:4]):
        return repr(index[:4])
    return f"of type {type(index).__name__}"


class Whereabouts:
    """Tells where the thread of a worker is, by its stack; as `Kinds` does of the training thread."""

    def of(self, inner: Frame) -> list[tuple[Where, float]]:
        """Return where a thread is whose innermost frame is given; nothing while it fetches no batch."""
        first = last = None
        frame: Any = inner
        while frame is not None:
            code = frame.f_code
            if code.co_filename.endswith(_FETCH):
                # A snapshot of these variables lives as long as the frame. Until Python 3.13 it may hold the list
                # of samples, too, which holds them anyway; nobody counts who holds that list.
                index = frame.f_locals.get("idx") if _is_asking(frame) else None
                sample = "" if index is None else _in_words(index)
                name = first or ("the dataset" if sample else "collate_fn")
                return [(Where(sample, name, last or ""), 1.0)]
            if not code.co_filename.startswith(_OURS):
                last = f"{code.co_name} ({_short(code.co_filename)}:{frame.f_lineno})"
                first = first or last
            frame = frame.f_back
        return []


def _is_asking(frame: Any) -> bool:
    """Whether this frame of torch's goes through indices: a frame of its own before Python 3.12."""
    code = frame.f_code
    return code.co_name == "<listcomp>" or "idx" in code.co_varnames


def _short(file: str) -> str:
    """Return a file's name, with its package if it is installed."""
    parts = Path(file).parts
    return (
        "/".join(parts[-2:]) if "site-packages" in parts or "dist-packages" in parts else parts[-1]
    )


def look(batches: SlowBatches) -> Sampler | None:
    """Begin to look at the thread that calls; None where no thread can be had."""
    import _thread

    sampler = Sampler(Whereabouts(), batches.add)
    sampler.thread = _thread.get_ident()
    try:
        sampler.start()
    except RuntimeError:
        return None
    return sampler
