"""Makes and times the first batches of a loader with `num_workers=0`, as torch makes them.

Promise: if there is nothing to gain a batch costs two readings of the clock more than torch's, and
the iterator becomes torch's own before iterator.py, which makes batches elsewhere, is imported:
that takes 0.2 s. Owner: the thread that iterates.
"""

import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from torch.utils.data import _utils
from torch.utils.data.dataloader import DataLoader, _SingleProcessDataLoaderIter

from stoker import speak
from stoker.blame import in_words
from stoker.clock import now_s
from stoker.loaders.in_process.evidence import SHORT_BATCH_S, TOO_LITTLE, Evidence, Usual
from stoker.local.sizing import gain
from stoker.uncollected import uncollected

if TYPE_CHECKING:
    from stoker.memory.store import Wish
    from stoker.remote.trainer.fleet import Fleet


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome for a loader. why_here: why this process makes its batches; "" if others do.

    gain: how many times as fast workers would make the loop; None if that was not measured.
    is_failure: stoker failed.
    """

    why_here: str
    gain: float | None = None
    is_failure: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class InProcessOptions:
    """Options of one loader. num_slots, num_cores: of this machine; fleet: other machines, which
    may help, as `capacity` slots; tell: called once it is decided who makes the batches; digest: of
    a batch; usual: what earlier epochs measured; ended: called with what later ones shall use;
    find_wish: of the shelf of remembered samples; say: tells the user."""

    num_slots: int
    num_cores: int
    fleet: "Fleet | None"
    capacity: int
    may_hedge: bool
    say: Callable[[str], None] | None
    arena_nbytes: int
    tell: Callable[[Decision], None]
    digest: Callable[[Any], str]
    usual: Usual | None
    ended: Callable[[Usual], None]
    find_wish: "Callable[[], Wish | None]"


class FirstBatches(_SingleProcessDataLoaderIter):
    """Iterates over a map-style num_workers=0 loader until it is decided who makes its batches."""

    is_theirs = False  # a StreamIterator's

    def __init__(self, loader: DataLoader[Any], options: InProcessOptions) -> None:
        self.is_theirs = True
        super().__init__(loader)
        self.is_theirs = False
        self._profile_name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
        self._options = options
        self._drawn: deque[Any] = deque()  # index lists that processes have, and nobody else
        # Functions, not methods: with a cycle through itself it would live on until a collection.
        self._step: Callable[[Any], Any] = FirstBatches._first
        self._fetch_s = self._step_s = 0.0
        self._left_s = 0.0  # when the loop got its last batch
        self._generators = b""  # as the last batch left them
        if options.usual:
            self._look_closer()

    # -- torch's own protocol ----------------------------------------------------------------

    def _next_data(self) -> Any:
        self._step_s = now_s() - self._left_s
        batch = self._step(self)
        self._left_s = now_s()
        return batch

    # -- made here -----------------------------------------------------------------------------

    def _first(self) -> Any:
        """Make the first batch. It and the first step pay one-time costs: neither is measured."""
        batch = self._timed()
        self._decide(FirstBatches._after_first)
        return batch

    def _after_first(self) -> None:
        if not self._stays_if_short():
            self._step = FirstBatches._second

    def _second(self) -> Any:
        batch = self._timed()
        self._decide(FirstBatches._after_second)
        return batch

    def _after_second(self) -> None:
        if not self._stays_if_short():
            from stoker.worker.seeding import save_generators

            self._generators = save_generators()
            self._step = FirstBatches._third

    def _third(self) -> Any:
        self._decide(FirstBatches._before_third)
        return self._step(self)

    def _before_third(self) -> None:
        """Go on to the purity check only if there would be something to gain at best."""
        why = self._at_best().why_here()
        if why:
            self._stay(why, None if why == TOO_LITTLE else self._step_s)
        else:
            self._look_closer()

    def _decide(self, what: Callable[["FirstBatches"], None]) -> None:
        """Take a decision. What it raises is stoker's error, and then torch makes the batches; only
        a signal handler of the script's runs in it, and what that raises is the script's."""
        try:
            what(self)
        except Exception as error:
            self.__class__ = FirstBatches
            self._step = FirstBatches._here
            if speak.raised_by_handler(error):
                raise
            with contextlib.suppress(Exception):  # to tell it may be what fails
                self._options.tell(Decision(in_words(error), is_failure=True))

    def _stays_if_short(self) -> bool:
        is_short = self._fetch_s < SHORT_BATCH_S
        if is_short:
            self._stay("a batch takes less than handing it over", None)
        return is_short

    def _at_best(self) -> Evidence:
        """Return the evidence as if nothing moved or was drawn, and a fingerprint cost nothing."""
        capacity = self._options.capacity
        return Evidence(
            fetch_s=self._fetch_s,
            step_s=self._step_s,
            look_s=0.0,
            has_moved=False,
            may_run_ahead=True,
            samples_draw=False,
            loop_draws=False,
            num_left=self._num_left(),
            num_slots=self._options.num_slots + capacity,
            num_cores=self._options.num_cores + capacity,
        )

    def _look_closer(self) -> None:
        """Become an InProcessIterator, which checks purity and has others make batches."""
        with uncollected():
            from stoker.loaders.in_process.iterator import InProcessIterator

        self.__class__ = InProcessIterator  # of the same layout
        cast(InProcessIterator, self).begin()

    def _timed(self) -> Any:
        index = self._next_index()  # type: ignore[no-untyped-call]
        began_s = now_s()
        batch = self._make(index)
        self._fetch_s = now_s() - began_s
        return batch

    def _make(self, index: Any) -> Any:
        batch = self._dataset_fetcher.fetch(index)
        return self._pinned(batch)

    def _pinned(self, batch: Any) -> Any:
        if self._pin_memory:
            return _utils.pin_memory.pin_memory(batch, self._pin_memory_device)
        return batch

    def _num_left(self) -> int:
        """Return how many batches follow this one, if the loop takes as many as it did before."""
        num_made = self._num_yielded + 1
        usual = self._options.usual
        at_most = usual.num_taken if usual else 1 << 30
        try:
            return min(at_most, len(self._index_sampler)) - num_made
        except Exception:  # it has no length; or its class raises what it likes
            return at_most - num_made

    def _stay(self, why: str, step_s: float | None) -> None:
        """Go on as torch from here. Reports what workers would gain, if that was measured."""
        slots = self._options.num_slots
        gains = None if step_s is None else gain(self._fetch_s, step_s, slots, slots)
        self._options.tell(Decision(why, gains))
        self._step = FirstBatches._here

    def _here(self) -> Any:
        batch = self._make(self._next_index())  # type: ignore[no-untyped-call]
        if not self._drawn:
            self.__class__ = _SingleProcessDataLoaderIter  # type: ignore[assignment]
        return batch
