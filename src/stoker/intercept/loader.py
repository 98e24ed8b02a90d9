"""What iterating a DataLoader does: our stream, or torch's own iterator with a reason.

Promise: in doubt, torch (docs/guarantees.md, G4).
"""

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.clock import now_s
from stoker.cluster.sizing import machine_nbytes
from stoker.intercept import in_process, run
from stoker.intercept.meter import Meter
from stoker.order.chain import num_chains
from stoker.proof import side

if TYPE_CHECKING:
    from torch.utils.data.dataloader import DataLoader

    from stoker.report.metrics import LoaderRecord
    from stoker.stream.iterator import StreamOptions

GetIterator = Callable[["DataLoader[Any]"], Any]
Next = Callable[[Any], Any]
WhyNot = Callable[["DataLoader[Any]", bool], list[str]]
MakeIterator = Callable[["DataLoader[Any]", "StreamOptions"], Any]

HELD_FRAC_OF_MACHINE = 0.25

_fast_forwards = threading.local()  # may: an iterator is being made that calls its own next()

_OURS = str(Path(__file__).parents[1])


def get_iterator(original: GetIterator) -> GetIterator:
    """DataLoader._get_iterator: a StreamIterator where we may, else torch's."""
    return _handing_out(_made, original)


def get_stateful_iterator(original: GetIterator) -> GetIterator:
    """StatefulDataLoader._get_iterator: a StatefulIterator where we may, else torchdata's."""
    return _handing_out(_made_stateful, original)


def _handing_out(make: Callable[..., Any], original: GetIterator) -> GetIterator:
    @functools.wraps(original)
    def _get_iterator(self: "DataLoader[Any]") -> Any:
        iterator = make(original, self, place_of(sys._getframe(1)))
        if side.is_on():
            iterator._stoker_meter.follow(self, _looks(self))
        return iterator

    return _get_iterator


def _made(original: GetIterator, loader: "DataLoader[Any]", place: str) -> Any:
    """An iterator with a meter."""
    reasons = _why_not(loader)
    if reasons:
        _say_why(place, reasons)
    if not reasons and (loader.num_workers or run.settings.chains != "script"):
        return _offload(loader, place)
    reasons = reasons or in_process.why(loader)
    record = _record(loader, place, loader.num_workers, reasons)
    if not reasons:
        return in_process.make_iterator(loader, record)
    iterator = _torchs(original, loader)
    _meter(iterator, record)
    return iterator


def _made_stateful(original: GetIterator, loader: "DataLoader[Any]", place: str) -> Any:
    """An iterator with a meter."""
    from stoker.intercept.eligible import why_not_stateful

    reasons = _why_not(loader, why_not_stateful)
    if not reasons:
        return _offload(loader, place, _stateful_iterator)
    if not run.settings.off:
        run.say_once(f"{place} stays with torchdata: {reasons[0]}")
    record = _record(loader, place, loader.num_workers, reasons)
    with _fast_forwarding():
        iterator = original(loader)
    _meter(iterator, record)
    return iterator


@contextlib.contextmanager
def _fast_forwarding() -> Iterator[None]:
    _fast_forwards.may = True
    try:
        yield
    finally:
        _fast_forwards.may = False


def _stateful_iterator(loader: Any, options: "StreamOptions") -> Any:
    from stoker.stateful.iterator import StatefulIterator

    with _fast_forwarding():
        iterator = StatefulIterator(loader, options, loader.next_iter_state)
    loader.next_iter_state = None
    return iterator


def _torchs(original: GetIterator, loader: "DataLoader[Any]") -> Any:
    """torch's own iterator; in the plain run of `stoker verify --chains N` with N workers.

    Only where stoker would have N chains too (docs/decisions/009-verify.md).
    """
    if not side.is_on() or run.settings.chains == "script":
        return original(loader)
    from stoker.intercept.eligible import why_not_here, why_not_offload

    theirs = loader.num_workers, loader.prefetch_factor
    if not why_not_here() and not why_not_offload(loader, chains_asked=True):
        loader.num_workers = _chains(loader, run.slots())
        loader.prefetch_factor = loader.prefetch_factor or 2  # as torch's, where there are workers
    try:
        return original(loader)
    finally:
        loader.num_workers, loader.prefetch_factor = theirs


def iterate(original: GetIterator) -> GetIterator:
    """DataLoader.__iter__: notes loaders whose class never asks our _get_iterator."""

    @functools.wraps(original)
    def __iter__(self: "DataLoader[Any]") -> Any:  # noqa: N807  # shows in tracebacks
        from stoker.intercept.eligible import overrides_get_iterator

        iterator = original(self)
        if overrides_get_iterator(type(self)) and not hasattr(iterator, "_stoker_meter"):
            _count_own(self, iterator, place_of(sys._getframe(1)))
        if side.is_on() and hasattr(iterator, "_stoker_meter"):
            _begin_epoch(iterator)
        return iterator

    return __iter__


def _count_own(loader: "DataLoader[Any]", iterator: Any, place: str) -> None:
    """What a class of its own hands out; it may be anything, a generator for one."""
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    reasons = _why_not(loader)
    _say_why(place, reasons)
    record = _record(loader, place, loader.num_workers, reasons)
    if issubclass(type(iterator), _BaseDataLoaderIter):
        _meter(iterator, record)
        if side.is_on():
            iterator._stoker_meter.follow(loader, _looks(loader))


def _begin_epoch(iterator: Any) -> None:
    """Of a persistent iterator `iter()` makes none, and begins another epoch all the same."""
    trail = iterator._stoker_meter.trail
    if trail is not None:
        trail.begin_epoch()


def next_batch(original: Next) -> Next:
    """_BaseDataLoaderIter.__next__ with a meter around it."""

    @functools.wraps(original)
    def __next__(self: Any) -> Any:  # noqa: N807  # shows in tracebacks
        try:
            meter = self._stoker_meter  # not by __dict__: that makes all later look-ups slower
        except AttributeError:
            meter = meet(self, sys._getframe(1))
            if meter is None:
                return original(self)
        if meter.num_left_to_skip:
            try:
                batch = original(self)
            except BaseException:
                meter.settle()
                raise
            meter.num_left_to_skip -= 1
            return batch
        asked_s = now_s()
        try:
            batch = original(self)
        finally:
            meter.look_at_workers(self)
        meter.delivered(self, batch, asked_s, now_s())
        return batch

    return __next__


def meet(iterator: Any, frame: Any) -> Meter | None:
    """The meter of an iterator that was made without asking torch's DataLoader; frame asks it.

    Only here, at its first next(): a function of ours around torch's __init__ would show as the
    place of the warnings that torch gives there. None of a StatefulDataLoader's that is being made
    and fast-forwards itself: those batches reach nobody.
    """
    if getattr(_fast_forwards, "may", False):
        return None
    unasked = f"{type(iterator).__qualname__} is made without asking torch's DataLoader"
    place, reasons = place_of(frame), _why_off() or [unasked]
    _say_why(place, reasons)
    num_workers = getattr(iterator, "_num_workers", 0)  # who knows what it left out of torch's
    looks = _looks_of(getattr(iterator, "_dataset", None), None, num_workers)
    record = run.recorder().loader(place, looks, chains=num_workers, reasons=reasons)
    _meter(iterator, record)
    _follow_unasked(iterator, getattr(iterator, "_dataset", None), num_workers)
    meter: Meter = iterator._stoker_meter
    return meter


def _follow_unasked(iterator: Any, dataset: Any, num_workers: int) -> None:
    """Alike for torch's and ours, who are compared; iter() did not begin their epoch."""
    if side.is_on():
        iterator._stoker_meter.follow(iterator, _looks_of(dataset, None, num_workers))
        _begin_epoch(iterator)


def _say_why(place: str, reasons: list[str]) -> None:
    if not run.settings.off:
        run.say_once(f"{place} stays with torch: {reasons[0]}")


def by_name(original: Callable[..., None]) -> Callable[..., None]:
    """_MultiProcessingDataLoaderIter.__init__: one that is made by this name becomes ours too.

    fastai does so, with something that only resembles a DataLoader.
    """
    from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

    @functools.wraps(original)
    def __init__(self: Any, loader: Any) -> None:  # noqa: N807  # shows in tracebacks
        if type(self) is _MultiProcessingDataLoaderIter and not _why_not(loader):
            _become_ours(self, loader, place_of(sys._getframe(1)))
        else:
            original(self, loader)

    return __init__


def _become_ours(iterator: Any, loader: "DataLoader[Any]", place: str) -> None:
    from stoker.stream.iterator import StreamIterator

    options = _options(loader)
    iterator.__class__ = StreamIterator
    StreamIterator.__init__(iterator, loader, options)
    _meter_ours(iterator, loader, place, options.num_chains)
    _follow_unasked(iterator, loader.dataset, loader.num_workers)


def _why_off() -> list[str]:
    return ["--off: everything is left to torch"] if run.settings.off else []


def _why_not(loader: "DataLoader[Any]", ask: WhyNot | None = None) -> list[str]:
    """ask: instead of eligible.why_not_offload."""
    if run.settings.off:
        return _why_off()
    from stoker.intercept.eligible import why_not_here, why_not_offload

    here = why_not_here()
    return [here] if here else (ask or why_not_offload)(loader, run.settings.chains != "script")


def _offload(loader: "DataLoader[Any]", place: str, make: MakeIterator | None = None) -> Any:
    """make: another iterator than StreamIterator."""
    from stoker.stream.iterator import StreamIterator

    loader.check_worker_number_rationality()
    options = _options(loader)
    iterator = (make or StreamIterator)(loader, options)
    _meter_ours(iterator, loader, place, options.num_chains)
    return iterator


def _options(loader: "DataLoader[Any]") -> "StreamOptions":
    from stoker.stream.iterator import StreamOptions

    settings = run.settings
    slots = run.slots()
    nbytes = machine_nbytes()
    return StreamOptions(
        num_chains=_chains(loader, slots),
        num_slots=slots,
        arena_nbytes=nbytes,  # of address space: only pages that are touched exist
        fleet=run.fleet(),
        may_hedge=not settings.no_hedge,
        held_limit_nbytes=(
            int(HELD_FRAC_OF_MACHINE * nbytes) if settings.memory is None else settings.memory
        ),
    )


def _meter_ours(iterator: Any, loader: "DataLoader[Any]", place: str, chains: int) -> None:
    settings = run.settings
    run.recorder().run.num_slots = max(run.slots(), chains)
    _meter(iterator, _record(loader, place, chains, []))
    if settings.chains != "script" and (not_for := _keeps_chains(loader)):
        iterator._stoker_meter.note(f"--chains {settings.chains} is not for {not_for}")
    if iterator._driver.why_no_replacement:
        why = iterator._driver.why_no_replacement
        iterator._stoker_meter.note(f"a worker that dies cannot be replaced: {why}")


def _chains(loader: "DataLoader[Any]", slots: int) -> int:
    asked = "script" if _keeps_chains(loader) else run.settings.chains
    return num_chains(asked, loader.num_workers, slots)


def _keeps_chains(loader: "DataLoader[Any]") -> str:
    """What it is of a loader that `--chains` is not for; empty: nothing."""
    from torch.utils.data import _DatasetKind

    if loader._dataset_kind == _DatasetKind.Iterable:
        return "iterable datasets"  # their samples would come more often, or shared otherwise
    if hasattr(loader, "snapshot_every_n_steps"):
        return "a StatefulDataLoader"  # its state names every worker
    return ""


def _record(
    loader: "DataLoader[Any]", place: str, chains: int, reasons: list[str]
) -> "LoaderRecord":
    return run.recorder().loader(place, _looks(loader), chains=chains, reasons=reasons)


def _meter(iterator: Any, record: "LoaderRecord") -> None:
    iterator._stoker_meter = Meter(run.recorder(), record, run.settings)


def _looks(loader: "DataLoader[Any]") -> tuple[object, ...]:
    batch_size = getattr(loader, "batch_size", None)  # what resembles a loader need not have one
    return _looks_of(loader.dataset, batch_size, loader.num_workers)


def _looks_of(dataset: Any, batch_size: int | None, num_workers: int) -> tuple[object, ...]:
    """What tells two loaders at one place apart."""
    try:
        length = len(dataset)
    except Exception:  # not every dataset has one
        length = -1
    kind = type(dataset)
    return (kind.__module__, kind.__qualname__, length, batch_size, num_workers)


def place_of(frame: Any) -> str:
    """file:line of the first frame that is neither torch's, torchdata's nor ours."""
    while frame is not None:
        file = frame.f_code.co_filename
        module = frame.f_globals.get("__name__", "")
        if not file.startswith(_OURS) and not module.startswith(("torch.", "torchdata.")):
            return f"{_short(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return "unknown place"


@functools.cache  # a third of what iter() costs; and a script that changes folder keeps its names
def _short(file: str) -> str:
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file
