"""Holds this process's run: its settings, its recorder, its fleet and the lines already printed.

One run a process; a forked child starts with none of its own. The recorder exists from the
first loader that is iterated.
"""

import atexit
import contextlib
import os
import sys
import sysconfig
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from stoker import speak
from stoker.clock import now_s
from stoker.config import Settings
from stoker.local.sizing import usable_cores
from stoker.storage.asking.upcoming import socket_name
from stoker.uncollected import uncollected

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from stoker.remote.trainer.fleet import Fleet, Told
    from stoker.reports.metrics import Remembered
    from stoker.reports.record import Recorder

STORAGE_ANSWERS_S = (
    0.25  # the training loop waits for it, every five seconds: it takes a millisecond
)

settings = Settings()
_recorder: "Recorder | None" = None
_began_s: float | None = None  # when the first loader was iterated
_fleet: "Fleet | None" = None
# Guards the making of _recorder and _fleet. Taken again where a signal handler of the script's,
# which came while one was made, iterates a loader: then that one makes it.
_lock = threading.RLock()
_said: dict[str, None] = {}  # in their order
_looks: "list[Callable[[], None]]" = []  # at what else happens, whenever a recorder refreshes
_exposed: "list[Callable[[], float]]" = []  # shares of a backward pass that wait for other ranks


def begin(new: Settings) -> None:
    global settings
    if new != settings:
        end()
    settings = new


def recorder() -> "Recorder":
    global _recorder
    with _lock:
        if _recorder is None:
            with uncollected():
                from stoker.reports.record import Recorder

            made = Recorder(settings, os.environ, _looks, cores(), _began_s, _exposed)
            _recorder = _recorder or made
            if _recorder is made:
                for text in _said:
                    made.said(text)
                if socket_name():
                    made.storage = storage
                atexit.register(made.finish)
            else:
                made.close()
        return _recorder


def has_recorder() -> bool:
    return _recorder is not None


def has_slow(place: str) -> bool:
    """Whether batches of the loader at a line of the script took long to make."""
    return _recorder is not None and _recorder.has_slow(place)


def iterated() -> None:
    """Note that a loader is iterated: the run's time counts from the first one's iter()."""
    global _began_s
    if _began_s is None:
        _began_s = now_s()
        if _recorder is not None:  # DDP had it made
            _recorder.begin(_began_s)


def waited_s() -> float:
    """Return the seconds that this process has waited for its loaders."""
    return 0.0 if _recorder is None else _recorder.waited_s()


def watch(look: "Callable[[], None]") -> None:
    """Register `look`, called now and then while loaders run, and at the end. It must not raise."""
    _looks.append(look)


def count_exposed(share: "Callable[[], float]") -> None:
    """Register what gives the share of a model's backward pass, at this moment, that waits for other ranks. Called
    by any thread; it must not raise."""
    _exposed.append(share)


def end() -> None:
    """Give up this run without a report, and start afresh."""
    if _recorder is not None:
        atexit.unregister(_recorder.finish)
        _recorder.close()
    if _fleet is not None:
        _fleet.close()
    _forget()


def _forget() -> None:
    global _recorder, _fleet, _began_s
    _recorder = _fleet = _began_s = None
    _looks.clear()
    _exposed.clear()
    _said.clear()


def slots() -> int:
    """Return how many processes may make batches: --workers, or as many as `cores`."""
    return (
        settings.workers if isinstance(settings.workers, int) and not settings.cluster else cores()
    )


def fleet() -> "Fleet | None":
    """Return the fleet on other machines; None if none was asked for, or none can be had."""
    global _fleet
    if settings.cluster is None:
        return None
    kept = recorder()
    with _lock:
        if _fleet is None:
            from stoker.remote.net.auth import versions
            from stoker.remote.trainer.fleet import Fleet

            _tell_what_stays()
            asked = settings._asdict() | {"workers": settings.workers and str(settings.workers)}
            more = {"num_cores": cores(), "versions": versions(), "folder": code_folder()}
            more |= {"about": _about(), "cluster": _cluster_of_rank(settings.cluster)}
            more |= _mounts_away() or {}
            try:
                made = Fleet(cast("Any", asked | more), say_once)
            except OSError as error:  # no process, memory or file descriptor for it
                say_once(f"remote workers are not available: {error}")
                return None
            _fleet = _fleet or made
            if _fleet is not made:
                made.close()
            kept.served_s, kept.files_sent = _fleet.served_s, _fleet.files_sent
            kept.storage = storage
        return _fleet


@speak.guarded
def _mounts_away() -> dict[str, Any]:
    """Return what hosts are told of the run's mounts, and of folders that loaders' datasets read here."""
    from stoker.storage.asking.roots import roots_of
    from stoker.storage.mounting.credentials import collect
    from stoker.storage.mounting.elsewhere import MountsAway

    mounts = (settings.mount or ()) if socket_name() else ()
    never = [*(mount.path for mount in mounts), *map(sysconfig.get_path, ("stdlib", "purelib"))]
    hosted = [list(root) for root in roots_of(_datasets(), never)]
    if not mounts and not hosted:
        return {}
    urls = [mount.url for mount in mounts]
    away = MountsAway(
        mounts=[list(mount) for mount in mounts],
        hosted=hosted,
        way={},
        socket=socket_name(),
        cache_memory=settings.cache_memory,
        disk=None if settings.cache_disk is None else list(settings.cache_disk),
        keeps=settings.cache_keep,
        credentials=collect(urls) if settings.mount_credentials else {},
    )
    return {"mounts_away": away._asdict()}


def _datasets() -> list[Any]:
    """Return the datasets of all loaders that there are: machines are told once what they may lack."""
    import gc

    from torch.utils.data import DataLoader

    found = [each for each in gc.get_objects() if issubclass(type(each), DataLoader)]
    return [vars(each).get("dataset") for each in found]  # one may be half made


def storage() -> dict[str, Any] | None:
    """Return what the storage process of this machine has read, and those of others (`away`); None if
    there is none."""
    from stoker.storage.asking.control import ask

    away = _fleet.storage_read() if _fleet is not None else {}
    told = None
    if name := socket_name():
        with contextlib.suppress(OSError):
            told = ask(name, {"stats": True}, within_s=STORAGE_ANSWERS_S)
    if told is None and not away:
        return None
    return {**(told or {"mounts": []} | dict.fromkeys(away, 0)), "away": away or None}


def remembered() -> "Remembered | None":
    """Return what is remembered, here and on other machines."""
    from stoker.memory import report
    from stoker.reports.ranks import local_world_size

    num_sharing = local_world_size(os.environ)
    if _fleet is None:
        return report.remembered(num_sharing=num_sharing)
    away = _fleet.remembered()
    _spread_differences(_fleet, away)
    return report.remembered(away, num_sharing)


def _spread_differences(fleet: "Fleet", away: "list[Told]") -> None:
    """Have what has differed on one machine left alone on all of them."""
    from stoker.memory import report

    report.leave_alone_here(away)
    for key, name, why in report.differed():
        fleet.tell_differed(key, name, why)


def _tell_what_stays() -> None:
    """Print which environment variables are not sent to workers; the engine does so for files."""
    from stoker.travels import secrets_that_stay

    if str(settings.cluster).startswith("processes:"):
        return
    if names := secrets_that_stay():
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        say_once(
            "environment variables that look like secrets do not travel to the workers: "
            f"{shown} ({len(names)} in all); if the dataset needs one: --send-env NAME,NAME"
        )


def _cluster_of_rank(cluster: str) -> str:
    """Return this rank's share of `processes:N`, or of M where it is NxM; on Ray the engine divides
    among all runs."""
    from stoker.reports.ranks import local_rank, local_world_size

    if not cluster.startswith("processes:"):
        return cluster
    hosts, x, num = cluster.removeprefix("processes:").rpartition("x")
    size, rank = local_world_size(os.environ), local_rank(os.environ)
    share = max(1, int(num) * (rank + 1) // size - int(num) * rank // size)
    return f"processes:{hosts}{x}{share}"


def _about() -> dict[str, object]:
    """Return how `stoker status` describes this run."""
    from stoker.reports.ranks import rank_of

    script = Path(getattr(sys.modules["__main__"], "__file__", None) or "python").name
    where = {"trainer": os.uname().nodename, "pid": os.getpid(), "rank": rank_of(os.environ)}
    return {"script": script, **where}


def code_folder() -> str | None:
    """Return the folder from which the script imports its own code: the script's; with `python -m
    package.module` the one that holds the package. None if that is the environment, or nowhere."""
    main = sys.modules["__main__"]
    file, package = getattr(main, "__file__", None), getattr(main, "__package__", None)
    if file is None:
        return None
    folders = Path(file).absolute().parents
    folder = folders[min(len(package.split(".")) if package else 0, len(folders) - 1)]
    environment = {sysconfig.get_path(name) for name in ("purelib", "platlib", "scripts")}
    return str(folder) if folder.is_dir() and str(folder) not in environment else None


def cores() -> int:
    """Return this rank's share of the cores, at least 1."""
    from stoker.reports.ranks import local_world_size

    return max(1, usable_cores() // local_world_size(os.environ))


def say_once(text: str) -> None:
    """Print one line on stderr, unless quiet or printed before."""
    if text not in _said and not settings.quiet:
        _said[text] = None
        speak.say(text)
        if _recorder is not None:
            _recorder.said(text)


def say_if_verbose(text: str) -> None:
    """Print one line, if --verbose asks for it."""
    if settings.verbose:
        say_once(text)


def _close_streams() -> None:
    opened = sys.modules.get("stoker.loaders.at_exit")
    if opened is not None:
        opened.close_all()


# Now, which is when torch is imported, and not with the first loader: multiprocessing ends torch's
# workers as late, and until then a handler of the script's may iterate a loader that has some.
atexit.register(_close_streams)


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()  # another thread of the parent may have held it
    _forget()


os.register_at_fork(after_in_child=_after_fork_in_child)
