"""Replaces a DataLoader's iterator by ours, or leaves torch's own and says why.

Promise: in doubt, torch (docs/guarantees.md, G4).
"""

import contextlib
import functools
import hashlib
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker import speak, stack, worker
from stoker.blame import LeftToTorch, in_words, is_installed
from stoker.clock import now_s
from stoker.config import FILES_FRAC
from stoker.doctor.plan import VARIABLE as EXAMINED
from stoker.intercept import in_process, run
from stoker.intercept.meter import Meter, Next, drawn_by
from stoker.local.sizing import CACHE_FRAC_OF_FREE, available_nbytes, machine_nbytes
from stoker.reports.samples import length_of
from stoker.scheduler.tasks.chain import num_chains
from stoker.tables import counted
from stoker.uncollected import uncollected
from stoker.verify import side

if TYPE_CHECKING:
    from torch.utils.data.dataloader import DataLoader

    from stoker.fast.report import FastWish
    from stoker.loaders.fallback import Attempt
    from stoker.loaders.multiprocess import StreamOptions
    from stoker.memory.store import Wish
    from stoker.reports.metrics import LoaderRecord

GetIterator = Callable[["DataLoader[Any]"], Any]
MakeIterator = Callable[["Attempt", "DataLoader[Any]", str], Any]

HELD_FRAC_OF_MACHINE = 0.25
UNKNOWN_PLACE = "unknown place"  # a loader that no line of Python's iterates

_fast_forwards = threading.local()  # may: an iterator is being made that calls its own next()

_OURS = f"{Path(__file__).parents[1]}/"


def get_iterator(original: GetIterator) -> GetIterator:
    """Wrap DataLoader._get_iterator: a StreamIterator if we may, else torch's."""
    return _handing_out(_made, original)


def get_stateful_iterator(original: GetIterator) -> GetIterator:
    """Wrap StatefulDataLoader._get_iterator: a StatefulIterator if we may, else torchdata's."""
    return _handing_out(_made_stateful, original)


def _handing_out(make: Callable[..., Any], original: GetIterator) -> GetIterator:
    @functools.wraps(original)
    def _get_iterator(self: "DataLoader[Any]") -> Any:
        if _is_in_worker():
            return original(self)
        iterator = make(original, self, place_of(sys._getframe(1)))
        _follow(iterator, self)
        return iterator

    return _get_iterator


def _is_in_worker() -> bool:
    """Whether this process is a loader's worker: what is iterated there is torch's own, and neither
    counted nor reported."""
    return worker.is_here or sys.modules["torch.utils.data"].get_worker_info() is not None


def _is_compared() -> bool:
    try:
        return side.is_on()
    except Exception:
        return False


def _follow(iterator: Any, loader: "DataLoader[Any]") -> None:
    meter = getattr(iterator, "_stoker_meter", None)
    if EXAMINED in os.environ and meter is not None:
        from stoker.doctor import exam

        exam.follow(loader, meter, run)
    if _is_compared() and meter is not None:
        try:
            meter.follow(loader, _looks(loader))
        except Exception as error:
            if speak.raised_by_handler(error):
                raise
            run.say_once(f"{meter.place} is not compared: {in_words(error)}")


def _made(original: GetIterator, loader: "DataLoader[Any]", place: str) -> Any:
    """Return an iterator with a meter: ours if the loader may be offloaded, else torch's."""
    reasons = _why_not(loader)
    if reasons:
        _say_why(place, reasons)
    elif loader.num_workers or run.settings.chains != "script":
        return _tried(_offload, original, loader, place)
    else:
        reasons = _asked(in_process.why, loader, place=place)
    if not reasons:
        return _tried(_in_process, original, loader, place)
    return _left(lambda: _torchs(original, loader), loader, place, reasons)


def _made_stateful(original: GetIterator, loader: "DataLoader[Any]", place: str) -> Any:
    """Return an iterator with a meter: ours if the loader may be offloaded, else torchdata's."""

    def torchdatas(loader: "DataLoader[Any]") -> Any:
        with _fast_forwarding():
            return original(loader)

    reasons = _why_not(loader, "why_not_stateful")
    if not reasons:
        return _tried(_offload_stateful, torchdatas, loader, place)
    if not run.settings.off:
        run.say_once(f"{place} stays with torchdata: {reasons[0]}")
    return _left(lambda: torchdatas(loader), loader, place, reasons)


def _asked(question: Callable[..., list[str]], *about: Any, place: str = "") -> list[str]:
    """Return the reasons that `question` gives; if it fails, that is one.

    Nothing of the script's runs for it that torch would run, so an error is the script's only if a
    signal handler raised it. place: if given, such a reason is printed for it.
    """
    try:
        return question(*about)
    except Exception as error:
        if speak.raised_by_handler(error):
            raise
        reasons = [in_words(error)]
    if place:
        _say_why(place, reasons)
    return reasons


def _left(make: Callable[[], Any], loader: Any, place: str, reasons: list[str]) -> Any:
    """Return torch's own iterator, made by `make`, with a meter if there can be one."""
    record = None
    try:
        _drop_early_server(loader)
        record = _record(loader, place, loader.num_workers, reasons)
    except Exception as error:
        if speak.raised_by_handler(error):
            raise
        run.say_once(f"{place} is not counted: {in_words(error)}")
    iterator = make()
    _meter(iterator, record)
    return iterator


def _drop_early_server(loader: Any) -> None:
    early = sys.modules.get("stoker.local.fork_server")
    if early is not None and loader.num_workers:
        early.drop()  # torch starts its own


def _tried(make: MakeIterator, original: GetIterator, loader: Any, place: str) -> Any:
    """Return the iterator that `make` makes; torch's own if stoker fails before it is complete.

    The failure is printed only once torch's iterator exists: an error of the script's is raised
    there as well, and then that is all that is to be told.
    """
    attempt: Attempt | None = None
    try:
        from stoker.loaders import fallback

        attempt = fallback.Attempt(loader)
        iterator = make(attempt, loader, place)
        attempt.iterator = None  # else it holds itself, and outlives the script's last reference
        return iterator
    except Exception as error:
        if (attempt is not None and attempt.is_theirs) or speak.raised_by_handler(error):
            raise
        why = _noted_why(loader, error)
    return _handed_over(attempt, original, loader, place, why)


def _handed_over(
    attempt: "Attempt | None", original: GetIterator, loader: Any, place: str, why: str
) -> Any:
    if attempt is not None and attempt.iterator is not None:
        _drawn_of(attempt.iterator).clear()
    iterator = original(loader) if attempt is None else attempt.hand_over(original)
    _say_why(place, [why])
    if getattr(iterator, "_stoker_meter", None) is None:
        try:
            record = _record(loader, place, loader.num_workers, [why])
            run.recorder().give_up(record, why)
        except Exception as error:
            if speak.raised_by_handler(error):
                raise
            record = None
        _meter(iterator, record)
    return iterator


def _drawn_of(iterator: Any) -> deque[int]:
    """Return `drawn_by(iterator)`; if that fails, an unattached deque: samples go uncounted."""
    try:
        return drawn_by(iterator)
    except Exception as error:
        if speak.raised_by_handler(error):
            raise
        return deque()


@contextlib.contextmanager
def _fast_forwarding() -> Iterator[None]:
    _fast_forwards.may = True
    try:
        yield
    finally:
        _fast_forwards.may = False


def _torchs(original: GetIterator, loader: "DataLoader[Any]") -> Any:
    """Return torch's own iterator; in the plain run of `stoker verify --chains N` with N workers.

    Only if stoker would have N chains too (docs/decisions/009-verify.md).
    """
    if not _is_compared() or run.settings.chains == "script":
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
    """Wrap DataLoader.__iter__, to meter loaders whose class never asks our _get_iterator."""

    @functools.wraps(original)
    @stack.passed_over
    def __iter__(self: "DataLoader[Any]") -> Any:  # noqa: N807  # shows in tracebacks
        _begin_again(self)
        began_s = now_s()
        iterator = original(self)
        try:
            _noted(self, iterator, sys._getframe(1))
            _count_begun(iterator, began_s)
        except Exception as error:
            if speak.raised_by_handler(error):
                raise
            run.say_once(f"{place_of(sys._getframe(1))} is not counted: {in_words(error)}")
        return iterator

    return __iter__


def _noted(loader: "DataLoader[Any]", iterator: Any, frame: Any) -> None:
    from stoker.intercept.eligible import overrides_get_iterator

    if _is_in_worker():
        return
    if overrides_get_iterator(type(loader)) and not hasattr(iterator, "_stoker_meter"):
        _count_own(loader, iterator, place_of(frame))
    if _is_compared() and hasattr(iterator, "_stoker_meter"):
        _begin_epoch(iterator)


@speak.guarded
def _begin_again(loader: "DataLoader[Any]") -> None:
    """Note that a loader is iterated; a persistent iterator forgets batches not yet delivered."""
    run.iterated()
    iterator = loader.__dict__.get("_iterator")
    meter = None if iterator is None else iterator.__dict__.get("_stoker_meter")
    if meter is not None:
        meter.settle()
        meter.forget_drawn()


def _count_begun(iterator: Any, began_s: float) -> None:
    """Count what iter() has taken since then as waited for."""
    meter: Meter | None = getattr(iterator, "_stoker_meter", None)
    if meter is not None:
        meter.begun(began_s)


def _count_own(loader: "DataLoader[Any]", iterator: Any, place: str) -> None:
    """Meter what a class's own _get_iterator returns; that may be anything, even a generator."""
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    reasons = _why_not(loader)
    _say_why(place, reasons)
    _drop_early_server(loader)
    record = _record(loader, place, loader.num_workers, reasons)
    if issubclass(type(iterator), _BaseDataLoaderIter):
        _meter(iterator, record)
        _follow(iterator, loader)


def _begin_epoch(iterator: Any) -> None:
    """Begin an epoch in the verify trail, even if `iter()` returned a persistent iterator again."""
    meter = iterator._stoker_meter
    if meter is not None and meter.trail is not None:
        meter.trail.begin_epoch()


def next_batch(original: Next) -> Next:
    """Wrap _BaseDataLoaderIter.__next__ with a meter."""

    @functools.wraps(original)
    @stack.passed_over
    def __next__(self: Any) -> Any:  # noqa: N807  # shows in tracebacks
        asked_s = now_s()
        try:
            meter = self._stoker_meter  # not by __dict__: that makes all later look-ups slower
        except AttributeError:
            meter = meet(self, sys._getframe(1))
        if meter is None:
            return _unmetered(original, self)
        if meter.marks_next:
            meter.asked()
        try:
            batch = original(self) if meter.way is None else meter.way(original, self, meter)
        except BaseException as error:
            meter.failed(self, asked_s, type(error) is StopIteration)
            raise
        got_s = now_s()
        meter.num_new += 1
        meter.wait_s += got_s - asked_s
        if meter.counts_rows:
            meter.see(self, batch)
        if got_s >= meter.look_at_s:
            meter.look(self, batch, got_s)
        return batch

    return __next__


@stack.passed_over
def _first_batch(original: Next, iterator: Any, meter: Meter) -> Any:
    """Return the first batch; if stoker fails before it is made, the iterator becomes torch's."""
    attempt, meter.attempt, meter.way = meter.attempt, None, None
    assert attempt is not None
    attempt.iterator = iterator
    try:
        return original(iterator)
    except StopIteration:
        raise
    except Exception as error:
        if attempt.is_theirs or speak.raised_by_handler(error):
            raise
        why = _noted_why(attempt.loader, error)
    meter.forget_drawn()
    attempt.become_torchs()
    meter.attach(iterator)
    _say_why(meter.place, [why])
    meter.give_up(why)
    return original(iterator)


def next_index(original: Next) -> Next:
    """Wrap _BaseDataLoaderIter._next_index, to note how many samples were asked for."""

    @functools.wraps(original)
    @stack.passed_over
    def _next_index(self: Any) -> Any:
        index = original(self)
        try:
            drawn = self._stoker_drawn
        except AttributeError:
            drawn = _drawn_of(self)
        drawn.append(len(index) if type(index) is list else length_of(index, self._auto_collation))
        return index

    return _next_index


@stack.passed_over
def _unmetered(original: Next, iterator: Any) -> Any:
    batch = original(iterator)
    drawn = _drawn_of(iterator)
    if drawn:
        drawn.popleft()
    return batch


def meet(iterator: Any, frame: Any) -> Meter | None:
    """Return a meter for an iterator made without torch's DataLoader. frame: its caller's.

    Only here, at its first next(): a function of ours around torch's __init__ would show as the
    location of the warnings that torch gives there. None while a StatefulDataLoader's iterator is
    being made and fast-forwards itself: those batches reach nobody.
    """
    if getattr(_fast_forwards, "may", False):
        return None
    try:
        if _is_in_worker():
            _meter(iterator, None)
            return None
        return _met(iterator, frame)
    except Exception as error:
        if speak.raised_by_handler(error):
            raise
        run.say_once(f"{place_of(frame)} is not counted: {in_words(error)}")
        _meter(iterator, None)
        return None


def _met(iterator: Any, frame: Any) -> Meter | None:
    unasked = f"{type(iterator).__qualname__} is made without asking torch's DataLoader"
    place, reasons = place_of(frame), _why_off() or [unasked]
    _say_why(place, reasons)
    num_workers = getattr(iterator, "_num_workers", 0)  # who knows what it left out of torch's
    dataset = getattr(iterator, "_dataset", None)
    looks = _looks_of(dataset, None, num_workers)
    record = run.recorder().loader(
        dataset, place, looks, chains=num_workers, reasons=reasons, dataset=_looks_in_words(looks)
    )
    _meter(iterator, record)
    _follow_unasked(iterator, dataset, num_workers)
    meter: Meter | None = iterator._stoker_meter
    return meter


def _follow_unasked(iterator: Any, dataset: Any, num_workers: int) -> None:
    """Record it for `stoker verify`, alike for torch's and ours; no iter() began its epoch."""
    if _is_compared() and iterator._stoker_meter is not None:
        iterator._stoker_meter.follow(iterator, _looks_of(dataset, None, num_workers))
        _begin_epoch(iterator)


def _say_why(place: str, reasons: list[str]) -> None:
    if not run.settings.off:
        run.say_once(f"{place} stays with torch: {reasons[0]}")


def by_name(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap _MultiProcessingDataLoaderIter.__init__: an iterator made by this name becomes ours too.

    fastai makes one so, for something that only resembles a DataLoader.
    """
    from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

    @functools.wraps(original)
    @stack.passed_over
    def __init__(self: Any, loader: Any) -> None:  # noqa: N807  # shows in tracebacks
        if type(self) is not _MultiProcessingDataLoaderIter or _why_not(loader):
            original(self, loader)
        else:
            began_s = now_s()
            _become_ours(self, original, loader, place_of(sys._getframe(1)))
            _count_begun(self, began_s)

    return __init__


def _become_ours(iterator: Any, original: Callable[..., None], loader: Any, place: str) -> None:
    """Turn the iterator into a StreamIterator, or into torch's own if that fails (`_tried`)."""

    def make(attempt: "Attempt", loader: Any, place: str) -> Any:
        with uncollected():
            from stoker.loaders.multiprocess import StreamIterator

        options = _options(loader, place)
        attempt.iterator = iterator
        iterator.__class__ = StreamIterator
        StreamIterator.__init__(iterator, loader, options)
        _meter_ours(attempt, loader, place, options)
        return iterator

    def torchs(loader: Any) -> Any:
        from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

        iterator.__class__ = _MultiProcessingDataLoaderIter
        original(iterator, loader)
        return iterator

    _tried(make, torchs, loader, place)
    _follow_unasked(iterator, loader.dataset, loader.num_workers)


def _why_off() -> list[str]:
    return ["--off: everything is left to torch"] if run.settings.off else []


def _why_not(loader: "DataLoader[Any]", question: str = "why_not_offload") -> list[str]:
    """Return the reasons not to offload. question: a function of eligible.py, by name."""
    return _why_off() or _asked(_why_not_now, loader, question)


def _why_not_now(loader: "DataLoader[Any]", question: str) -> list[str]:
    from stoker.intercept import eligible

    why = eligible.why_not_here() or _refused_for(loader)
    if why:
        return [why]
    reasons: list[str] = getattr(eligible, question)(loader, run.settings.chains != "script")
    return reasons


_refused: "dict[int, tuple[weakref.ref[Any], str]]" = {}  # datasets by id, for they need not be hashable


def _noted_why(loader: Any, error: Exception) -> str:
    """Return an error of ours in words; where it is a reason, it is one for the dataset's next epochs too,
    though each may have a loader of its own."""
    why = in_words(error)
    if isinstance(error, LeftToTorch):
        with contextlib.suppress(AttributeError, TypeError):  # a list has no weak references
            key = id(loader.dataset)
            _refused[key] = weakref.ref(loader.dataset, lambda _: _refused.pop(key, None)), why
    return why


def _refused_for(loader: Any) -> str:
    dataset = getattr(loader, "dataset", None)
    held, why = _refused.get(id(dataset), (None, ""))
    return why if held is not None and held() is dataset else ""


def _offload(attempt: "Attempt", loader: "DataLoader[Any]", place: str) -> Any:
    from torch.utils.data.dataloader import DataLoader

    from stoker.local import fork_server

    fork_server.begin(loader.multiprocessing_context)
    with uncollected():
        from stoker.loaders.multiprocess import StreamIterator

    _check_workers(DataLoader, loader)
    options = _options(loader, place)
    attempt.iterator = StreamIterator.__new__(StreamIterator)
    StreamIterator.__init__(attempt.iterator, loader, options)
    _meter_ours(attempt, loader, place, options)
    return attempt.iterator


def _offload_stateful(attempt: "Attempt", loader: Any, place: str) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    with uncollected():
        from stoker.loaders.stateful import StatefulIterator

    _check_workers(StatefulDataLoader, loader)
    options = _options(loader, place)
    attempt.iterator = StatefulIterator.__new__(StatefulIterator)
    with _fast_forwarding():
        StatefulIterator.__init__(attempt.iterator, loader, options, loader.next_iter_state)
    _meter_ours(attempt, loader, place, options)
    loader.next_iter_state = None
    return attempt.iterator


def _check_workers(kind: type["DataLoader[Any]"], loader: "DataLoader[Any]") -> None:
    """Check num_workers as `kind._get_iterator` does, at its line. kind: a library's class."""
    check = "check_worker_number_rationality"
    stack.standing_at(kind._get_iterator, check)(getattr(loader, check))


def _in_process(attempt: "Attempt", loader: "DataLoader[Any]", place: str) -> Any:
    record = _record(loader, place, 0, [])

    def find_wish() -> "Wish | None":
        wish = _wish(loader, place)
        _report_on(wish)
        return wish

    return in_process.make_iterator(loader, record, attempt, find_wish)


def _options(loader: "DataLoader[Any]", place: str) -> "StreamOptions":
    from stoker.loaders.multiprocess import StreamOptions

    settings = run.settings
    slots = run.slots()
    nbytes = machine_nbytes()
    return StreamOptions(
        num_chains=_chains(loader, slots),
        num_slots=slots,
        arena_nbytes=nbytes,  # of address space: only pages that are touched exist
        fleet=run.fleet(),
        may_hedge=not settings.no_hedge,
        wish=_wish(loader, place),
        fast=_fast_wish(),
        names_slow=not run.settings.no_stalls,
        has_slow=run.has_slow(place),
        say=lambda text: run.say_once(f"{place}: {text}"),
        held_limit_nbytes=(
            int(HELD_FRAC_OF_MACHINE * nbytes) if settings.memory is None else settings.memory
        ),
    )


def _wish(loader: "DataLoader[Any]", place: str) -> "Wish | None":
    """Return what the loader wants of the shelf of remembered samples; None: nothing."""
    from stoker.memory.store import DiskWish, Wish

    settings = run.settings
    if settings.cache == "off":
        return None
    told = hashlib.blake2b(repr((place, _looks(loader))).encode(), digest_size=16)
    disk = settings.cache_disk
    trusted = frozenset(name.strip() for name in (settings.cache_trust or "").split(","))
    wanted = disk and DiskWish(Path(disk.path), disk.nbytes, settings.cache_keep)
    asked = settings.cache_memory and _cache_nbytes()
    return Wish(
        _cache_nbytes,
        told.digest(),
        settings.cache == "audit",
        wanted,
        trusted,
        asked,
    )


def _fast_wish() -> "FastWish | None":
    """Return what a loader's workers are to know of faster functions; None: they use none."""
    from stoker.fast.report import report

    asked = run.settings.fast
    return (
        None if asked == "off" else report.wish(audit=asked == "audit", lasts=run.fleet() is None)
    )


def _report_on(wish: "Wish | None", fast: "FastWish | None" = None) -> None:
    """Have the recorder tell what becomes of what was wished for."""
    if wish is not None:
        run.recorder().remembered = run.remembered
    if fast is not None:
        from stoker.fast.report import report

        run.recorder().fast = report.places


def _cache_nbytes() -> int:
    """Return the memory for remembered samples: this rank's share."""
    from stoker.reports.ranks import local_world_size

    asked = run.settings.cache_memory
    nbytes = CACHE_FRAC_OF_FREE * available_nbytes() if asked is None else asked
    if run.settings.mount:
        nbytes *= 1 - FILES_FRAC
    return int(nbytes / local_world_size(os.environ))


def _meter_ours(
    attempt: "Attempt", loader: "DataLoader[Any]", place: str, options: "StreamOptions"
) -> None:
    settings, iterator, chains = run.settings, attempt.iterator, options.num_chains
    recorder = run.recorder()  # the first time only now: workers start meanwhile
    _report_on(options.wish, options.fast)
    recorder.run.num_slots = max(run.slots(), chains)
    meter = Meter(recorder, _record(loader, place, chains, []), run.settings)
    meter.keeps_number = _keeps_chains(loader)
    if meter.keeps_number and settings.chains != "script":
        meter.note(f"--chains {settings.chains} is not for {meter.keeps_number}")
    meter.attempt, meter.way = attempt, _first_batch
    run.say_if_verbose(
        f"{place}: {counted(chains, 'worker')} of stoker's, as of num_workers={chains}"
    )
    meter.attach(iterator)
    iterator._stoker_meter = meter


def _chains(loader: "DataLoader[Any]", slots: int) -> int:
    asked = "script" if _keeps_chains(loader) else run.settings.chains
    return num_chains(asked, loader.num_workers, slots)


def _keeps_chains(loader: "DataLoader[Any]") -> str:
    """Name the kind of loader, if it is one that `--chains` does not apply to; else empty."""
    from torch.utils.data import _DatasetKind

    if loader._dataset_kind == _DatasetKind.Iterable:
        return "an iterable dataset"  # their samples would come more often, or shared otherwise
    if "snapshot_every_n_steps" in getattr(loader, "__dict__", {}):
        return "a StatefulDataLoader"  # its state names every worker
    return ""


def _record(
    loader: "DataLoader[Any]", place: str, chains: int, reasons: list[str]
) -> "LoaderRecord":
    looks = _looks(loader)
    return run.recorder().loader(
        loader, place, looks, chains=chains, reasons=reasons, dataset=_looks_in_words(looks)
    )


def _meter(iterator: Any, record: "LoaderRecord | None") -> None:
    """Attach a meter. Without a record, or on a failure, the iterator's batches are not counted."""
    meter = None
    if record is not None:
        try:
            meter = Meter(run.recorder(), record, run.settings)
            meter.attach(iterator)
        except Exception as error:
            if speak.raised_by_handler(error):
                raise
            run.say_once(f"{record.place} is not counted: {in_words(error)}")
    iterator._stoker_meter = meter


def _looks(loader: "DataLoader[Any]") -> tuple[object, ...]:
    batch_size = getattr(loader, "batch_size", None)  # what resembles a loader need not have one
    kind = type(loader)  # one class may be taken over and another left to torch
    looks = _looks_of(loader.dataset, batch_size, loader.num_workers)
    return (kind.__module__, kind.__qualname__, *looks)


def _looks_of(dataset: Any, batch_size: int | None, num_workers: int) -> tuple[object, ...]:
    """Return what tells apart two loaders that the same line iterates."""
    try:
        length = len(dataset)
    except Exception:  # not every dataset has one
        length = -1
    kind = type(dataset)
    return (kind.__module__, kind.__qualname__, length, batch_size, num_workers)


def _looks_in_words(looks: tuple[Any, ...]) -> str:
    """Return what a user tells two loaders apart by, as `Photos, 2,100 samples, batch_size=32`."""
    _, kind, length, batch_size, _ = looks[-5:]
    words = [kind.rpartition(".")[2]]
    words += [counted(length, "sample")] if length >= 0 else []
    words += [f"batch_size={batch_size}"] if batch_size is not None else []
    return ", ".join(words)


def place_of(frame: Any) -> str:
    """Return file:line of the script's innermost frame: not ours, torch's, Python's or of another
    installed package (tqdm, Lightning). If there is none, the first neither torch's nor ours."""
    try:
        return _place_of(frame)
    except Exception as error:
        if speak.raised_by_handler(error):
            raise
        return UNKNOWN_PLACE


def _place_of(frame: Any) -> str:
    nearest = None
    while frame is not None:
        file = frame.f_code.co_filename
        module = str(frame.f_globals.get("__name__"))  # the script may have put anything there
        if not file.startswith(_OURS) and not module.startswith(("torch.", "torchdata.")):
            if not is_installed(file):
                return f"{_short(file)}:{frame.f_lineno}"
            nearest = nearest or f"{_short(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return nearest or UNKNOWN_PLACE


def _cell_of(file: str) -> str:
    """Return `cell 3`, if the file stands for a notebook's cell; else empty."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    number = getattr(getattr(shell, "compile", None), "_filename_map", {}).get(file)
    return "" if number is None else f"cell {number}"


@functools.cache  # a third of what iter() costs; and a script that changes folder keeps its names
def _short(file: str) -> str:
    try:
        if cell := _cell_of(file):
            return cell
        return min(file, os.path.relpath(file), key=len)
    except (ValueError, OSError):
        return file
