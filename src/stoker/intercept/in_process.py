"""Loaders with `num_workers=0`: which are offloaded, and what is reported.

Promise: one line for a loader that workers could make faster; none if there is nothing to gain.
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stoker.intercept import run
from stoker.intercept.meter import Meter
from stoker.local.sizing import machine_nbytes
from stoker.reports.summary import OTHER_DRAWS
from stoker.tables import counted
from stoker.uncollected import uncollected

if TYPE_CHECKING:
    from torch.utils.data.dataloader import DataLoader

    from stoker.loaders.fallback import Attempt
    from stoker.loaders.in_process.evidence import Usual
    from stoker.loaders.in_process.first import Decision
    from stoker.memory.store import Wish
    from stoker.reports.metrics import LoaderRecord

MIN_GAIN_TO_TELL = 1.1
TRYING = "num_workers=0: not looked at yet"


@dataclass(slots=True)
class _Known:
    """Findings about a loader, kept between its iterators. usual: see InProcessOptions."""

    loader: "weakref.ref[DataLoader[Any]]"
    why_here: str = ""
    usual: "Usual | None" = None


_loaders: dict[int, _Known] = {}  # by id, for a class of the script's may not be hashable


def _known(loader: "DataLoader[Any]") -> _Known:
    key = id(loader)
    known = _loaders.get(key)
    if known is None:
        # Bound here: at interpreter exit globals may be gone before a loader is.
        def forget(_: object, pop: Callable[..., object] = _loaders.pop) -> None:
            pop(key, None)

        known = _loaders[key] = _Known(weakref.ref(loader, forget))
    return known


def why(loader: "DataLoader[Any]") -> list[str]:
    """Return the reason why a loader that was tried stays with torch; empty for any other."""
    reason = _known(loader).why_here
    return [reason] if reason else []


def make_iterator(
    loader: "DataLoader[Any]",
    record: "LoaderRecord",
    attempt: "Attempt",
    find_wish: "Callable[[], Wish | None]",
) -> Any:
    """Make an iterator that decides who makes its batches. attempt: gets it before `__init__`;
    find_wish: of the shelf of remembered samples."""
    with uncollected():
        from stoker.loaders.in_process.first import FirstBatches, InProcessOptions
    from stoker.reports.digest import batch_sha256

    slots = run.slots()
    known = _known(loader)
    run.recorder().settle(record, [TRYING])
    meter = Meter(run.recorder(), record, run.settings)

    def tell(decision: "Decision") -> None:
        reason = f"num_workers=0: {decision.why_here}" if decision.why_here else ""
        run.recorder().settle(record, [reason] if reason else [])
        if not reason:
            run.recorder().run.num_slots = slots
            run.say_if_verbose(f"{record.place}: made by processes on the other cores")
        known.why_here = reason
        if decision.is_failure:
            run.say_once(f"{record.place} stays with torch: {reason}")
        elif reason and (decision.gain or 0.0) < MIN_GAIN_TO_TELL:
            run.say_if_verbose(f"{record.place}: by plain PyTorch, {reason}")
        elif reason:
            run.say_once(
                f"{record.place} stays with torch: {reason}; "
                f"--chains {slots} gives it {counted(slots, 'worker')} ({OTHER_DRAWS})"
            )

    def ended(usual: "Usual") -> None:
        known.usual = usual

    fleet = run.fleet()
    options = InProcessOptions(
        num_slots=slots,
        num_cores=run.cores(),
        fleet=fleet,
        # They may be on their way.
        capacity=max(1, fleet.num_cpus) if fleet and not fleet.is_gone else 0,
        may_hedge=not run.settings.no_hedge,
        say=lambda text: run.say_once(f"{record.place}: {text}"),
        arena_nbytes=machine_nbytes(),
        tell=tell,
        digest=batch_sha256,
        usual=known.usual,
        ended=ended,
        find_wish=find_wish,
    )
    iterator: Any = FirstBatches.__new__(FirstBatches)
    attempt.iterator = iterator
    FirstBatches.__init__(iterator, loader, options)
    iterator._stoker_meter = meter
    meter.attach(iterator)
    return iterator
