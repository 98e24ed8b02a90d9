"""Adds up what a run's workers tell of the faster ways that they took.

Which ways were compared often enough is kept for the next run in $XDG_CACHE_HOME/stoker (~/.cache/stoker), for
these very versions of Python, packages and processor: a short run has no time to compare them anew.
Owner: the trainer, whose workers send what is new with their batches; from every machine.
"""

import atexit
import contextlib
import hashlib
import json
import os
import sys
from dataclasses import astuple, replace
from pathlib import Path
from typing import NamedTuple

from stoker.kept_files import KeptFolder
from stoker.memory.watch import codecs, foundations
from stoker.reports.metrics import FastPlace

NUM_PROVE = 4  # results of a place that are compared, by all workers, before it is used without
_PROVEN, _MAX_NBYTES, _CHECK_NBYTES = ".proven", 1 << 20, 16
_MAX_FILES = 16  # of so many sets of versions, those used last


class FastWish(NamedTuple):
    """Says what a loader wants of faster ways. audit: compare everything; known: places, by name: why they are
    left alone, or nothing if they were compared often enough."""

    audit: bool
    known: dict[str, str]


def pack_news(places: list[FastPlace]) -> bytes:
    """Pack what a worker has to tell, as a section of a frame."""
    return json.dumps([astuple(place) for place in places]).encode()


class Report:
    """Keeps what is known of all places of a run."""

    def __init__(self) -> None:
        self._places: dict[str, FastPlace] = {}
        self._earlier: set[str] | None = None  # proven by earlier runs

    def take_in(self, news: bytes) -> None:
        for name, *counts in json.loads(news):
            self._places.setdefault(name, FastPlace(name)).add(*counts)

    def places(self) -> list[FastPlace]:
        """Return copies, as they are at this moment."""
        return [replace(place) for place in self._places.values()]

    def wish(self, audit: bool, lasts: bool) -> FastWish:
        """Return what the workers of a loader that begins now are told. lasts: all of them are on this
        machine, of which earlier runs have told and later ones are to know."""
        if lasts and self._earlier is None:
            self._earlier = _kept()
            atexit.register(self._keep, os.getpid())
        whys = {name: place.why for name, place in self._places.items() if place.why}
        earlier = filter(_may_last, self._earlier or ())
        return FastWish(audit, dict.fromkeys([*earlier, *self._proven()], "") | whys)

    def _proven(self) -> set[str]:
        return {name for name, place in self._places.items() if place.num_checked >= NUM_PROVE}

    def _keep(self, pid: int) -> None:
        """Tell later runs, at the end of this one."""
        if pid == os.getpid():
            earlier, differed = _kept(), {each.place for each in self._places.values() if each.why}
            proven = earlier.union(filter(_may_last, self._proven())) - differed
            if proven != earlier:
                _keep(proven)


def _folder() -> KeptFolder:
    """Raises OSError."""
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    path = Path(os.path.expanduser(root), "stoker")  # noqa: PTH111 - raises nothing
    if not path.is_absolute():
        raise FileNotFoundError(path)
    return KeptFolder(path, _MAX_NBYTES)


def _name() -> str:
    """Return the name of the file for these versions."""
    # Of a checkout, built anew at will.
    file = Path(__file__).parent.with_name("images") / "libimages.so"
    built = file.stat().st_mtime_ns if file.exists() else 0
    told = foundations() + codecs() + str(built).encode()
    return hashlib.blake2b(told, digest_size=16).hexdigest() + _PROVEN


def _kept() -> set[str]:
    """Return what earlier runs have proven; nothing where it is not whole, or cannot be kept."""
    with contextlib.suppress(OSError, ValueError):
        folder, name = _folder(), _name()
        told = folder.read(name, _MAX_NBYTES)
        if _check(told[_CHECK_NBYTES:]) == told[:_CHECK_NBYTES]:
            folder.note_use(name)
            return set(told[_CHECK_NBYTES:].decode().splitlines())
    return set()


def _keep(names: set[str]) -> None:
    with contextlib.suppress(OSError):
        folder, told = _folder(), "\n".join(sorted(names)).encode()
        folder.write(_name(), [_check(told), told])
        files = {name: at.st_mtime for name, at in folder.files().items() if name.endswith(_PROVEN)}
        folder.remove(*sorted(files, key=files.__getitem__)[:-_MAX_FILES])


def _may_last(name: str) -> bool:
    """Whether this process knows whose libraries made it: of a JPEG file also the one that decodes."""
    return "PIL._imaging" in sys.modules or not name.startswith("JPEG")


def _check(told: bytes) -> bytes:
    return hashlib.blake2b(told, digest_size=_CHECK_NBYTES).digest()


report = Report()  # this process's
