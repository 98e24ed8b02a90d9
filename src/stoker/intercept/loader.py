"""What iterating a DataLoader does: our stream, or torch's own iterator with a reason.

Promise: in doubt, torch (docs/guarantees.md, G4).
"""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.cluster.sizing import machine_nbytes
from stoker.intercept import in_process, run
from stoker.intercept.meter import Meter
from stoker.order.chain import num_chains
from stoker.proof import side

if TYPE_CHECKING:
    from torch.utils.data.dataloader import DataLoader

    from stoker.report.metrics import LoaderRecord

GetIterator = Callable[["DataLoader[Any]"], Any]

HELD_FRAC_OF_MACHINE = 0.25

_OURS = str(Path(__file__).parents[1])


def get_iterator(original: GetIterator) -> GetIterator:
    """DataLoader._get_iterator: a StreamIterator where we may, else torch's."""

    @functools.wraps(original)
    def _get_iterator(self: "DataLoader[Any]") -> Any:
        iterator = _made(original, self, place_of(sys._getframe(1)))
        if side.is_on():
            iterator._stoker_meter.follow(self, _looks(self))
        return iterator

    return _get_iterator


def _made(original: GetIterator, loader: "DataLoader[Any]", place: str) -> Any:
    """An iterator with a meter."""
    reasons = _why_not(loader)
    if reasons and not run.settings.off:
        run.say_once(f"{place} stays with torch: {reasons[0]}")
    if not reasons and (loader.num_workers or run.settings.chains != "script"):
        return _offload(loader, place)
    reasons = reasons or in_process.why(loader)
    record = _record(loader, place, loader.num_workers, reasons)
    if not reasons:
        return in_process.iterator(loader, record)
    iterator = _torchs(original, loader)
    _meter(iterator, record)
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
        from torch.utils.data.dataloader import DataLoader

        iterator = original(self)
        overrides = type(self)._get_iterator is not DataLoader._get_iterator
        if overrides and not hasattr(iterator, "_stoker_meter"):
            place, reasons = place_of(sys._getframe(1)), _why_not(self)
            run.say_once(f"{place} stays with torch: {reasons[0]}")
            _meter(iterator, _record(self, place, self.num_workers, reasons))
            if side.is_on():
                iterator._stoker_meter.follow(self, _looks(self))
        if side.is_on():
            _begin_epoch(iterator)
        return iterator

    return __iter__


def _begin_epoch(iterator: Any) -> None:
    """Of a persistent iterator `iter()` makes none, and begins another epoch all the same."""
    trail = iterator._stoker_meter.trail
    if trail is not None:
        trail.begin_epoch()


def _why_not(loader: "DataLoader[Any]") -> list[str]:
    if run.settings.off:
        return ["--off: everything is left to torch"]
    from stoker.intercept.eligible import why_not_here, why_not_offload

    here = why_not_here()
    return [here] if here else why_not_offload(loader, run.settings.chains != "script")


def _offload(loader: "DataLoader[Any]", place: str) -> Any:
    from stoker.stream.iterator import StreamIterator, StreamOptions

    settings = run.settings
    slots = run.slots()
    chains = _chains(loader, slots)
    loader.check_worker_number_rationality()
    nbytes = machine_nbytes()
    options = StreamOptions(
        num_chains=chains,
        num_slots=slots,
        arena_nbytes=nbytes,  # of address space: only pages that are touched exist
        held_limit_nbytes=(
            int(HELD_FRAC_OF_MACHINE * nbytes) if settings.memory is None else settings.memory
        ),
    )
    iterator: Any = StreamIterator(loader, options)
    run.recorder().run.num_slots = max(slots, chains)
    _meter(iterator, _record(loader, place, chains, []))
    if _is_iterable(loader) and settings.chains != "script":
        iterator._stoker_meter.note(f"--chains {settings.chains} is not for iterable datasets")
    if iterator._driver.why_no_replacement:
        why = iterator._driver.why_no_replacement
        iterator._stoker_meter.note(f"a worker that dies cannot be replaced: {why}")
    return iterator


def _chains(loader: "DataLoader[Any]", slots: int) -> int:
    # More workers would give an iterable's samples more often, or share them otherwise.
    asked = "script" if _is_iterable(loader) else run.settings.chains
    return num_chains(asked, loader.num_workers, slots)


def _is_iterable(loader: "DataLoader[Any]") -> bool:
    from torch.utils.data import IterableDataset

    return isinstance(loader.dataset, IterableDataset)


def _record(
    loader: "DataLoader[Any]", place: str, chains: int, reasons: list[str]
) -> "LoaderRecord":
    return run.recorder().loader(place, _looks(loader), chains=chains, reasons=reasons)


def _meter(iterator: Any, record: "LoaderRecord") -> None:
    iterator._stoker_meter = Meter(run.recorder(), record, run.settings)


def _looks(loader: "DataLoader[Any]") -> tuple[object, ...]:
    """What tells two loaders at one place apart."""
    try:
        length = len(loader.dataset)  # type: ignore[arg-type]  # not every dataset has one
    except Exception:
        length = -1
    dataset = type(loader.dataset)
    return (dataset.__module__, dataset.__qualname__, length, loader.batch_size, loader.num_workers)


def place_of(frame: Any) -> str:
    """file:line of the first frame that is neither torch's nor ours."""
    while frame is not None:
        file = frame.f_code.co_filename
        module = frame.f_globals.get("__name__", "")
        if not file.startswith(_OURS) and not module.startswith("torch."):
            return f"{_short(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return "unknown place"


@functools.cache  # a third of what iter() costs; and a script that changes folder keeps its names
def _short(file: str) -> str:
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file
