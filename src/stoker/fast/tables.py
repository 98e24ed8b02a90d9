"""Keeps the tables that audio libraries make anew at each call: filter banks, kernels of resampling, windows.

They depend on numbers alone: torchaudio makes a kernel of 160 x 475 weights for each `functional.resample`, and a
filter bank for each `MelSpectrogram` that a `__getitem__` makes. Measured: benchmarks/media_parts.py

Promise: what is given is what the function gives, in memory of its own. Whatever is not plain numbers, was warned of, or
would have called anything that is not its library's own goes to the function itself.
Ban: only in a process of ours.
Owner: the worker's main thread.
"""

import contextlib
import functools
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from stoker.blame import is_installed
from stoker.fast.place import Place, news_of
from stoker.fast.report import FastWish
from stoker.fingerprint.modes import has_modes, modes
from stoker.memory.watch import is_traced
from stoker.redirect import is_of_library, redirect, written_code
from stoker.reports.metrics import FastPlace
from stoker.stack import passed_over
from stoker.trusted import is_trusted

_TABLES = [
    *(
        ("torchaudio.functional.functional", name)
        for name in ("_get_sinc_resample_kernel", "melscale_fbanks", "linear_fbanks")
    ),
    ("torchaudio.compliance.kaldi", "get_mel_banks"),
    ("librosa.filters", "mel"),
    ("librosa.filters", "chroma"),
]
MAX_NBYTES = 16 << 20  # of all tables of a worker
MAX_TABLES = 64
_PLAIN = (int, float, str, bool, type(None), torch.dtype, torch.device, type)


class Tables:
    """A worker's tables."""

    def __init__(self, wish: FastWish) -> None:
        self._wish = wish
        self._thread = threading.get_ident()
        self._num_modules = 0
        self._places: dict[str, Place] = {}
        self._kept: dict[tuple[object, ...], Any] = {}
        self._room_nbytes = MAX_NBYTES

    def look(self) -> None:
        """Redirect what has been imported since the last look."""
        if len(sys.modules) == self._num_modules:
            return
        self._num_modules = len(sys.modules)
        for module, name in _TABLES:
            shown = f"{module}.{name}"
            if shown in self._places or module not in sys.modules:
                continue
            function = vars(sys.modules[module]).get(name)
            if function is None:
                continue  # it is being imported, or is of another version
            self._places[shown] = Place(shown, self._wish)
            called: list[_Called] = []
            with contextlib.suppress(Exception):  # ours
                called = list(_called_by(function, module.partition(".")[0]))
            if called and is_of_library(module, function) and all(map(_is_trusted, called)):
                hook = functools.partial(self._hook, self._places[shown], called)
                redirect(sys.modules[module], name, hook)

    def news(self) -> list[FastPlace]:
        """Return what is new since the last call."""
        return news_of(list(self._places.values()))

    @passed_over
    def _hook(
        self,
        place: Place,
        called: list["_Called"],
        original: Callable[..., Any],
        arguments: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        key = self._key_of(place, called, arguments, named)
        if key is None:
            return original(*arguments, **named)
        kept = self._kept.get(key)
        if kept is not None and not place.must_check():
            return _copy_of(kept)
        warn = warnings.warn
        # In C, so that no frame is added, which would make a warning name another line.
        counted: Any = functools.lru_cache(maxsize=0)(warn)
        warnings.warn = counted
        try:
            value = original(*arguments, **named)
        finally:
            warnings.warn = warn
        if kept is not None:
            place.note(_are_same(value, kept))
        elif counted.cache_info().misses == 0:
            self._keep(key, value)
        return value

    def _key_of(
        self,
        place: Place,
        called: list["_Called"],
        arguments: tuple[Any, ...],
        named: dict[str, Any],
    ) -> tuple[object, ...] | None:
        """Return all that a table depends on; None: it is not ours to serve."""
        if place.why or threading.get_ident() != self._thread or is_traced() or has_modes():
            return None
        if any(inside.get(name) is not value for inside, name, value in called):
            return None  # the script has replaced something since
        told = [*arguments, *(each for pair in sorted(named.items()) for each in pair)]
        if any(type(each) not in _PLAIN for each in told):
            return None
        exact = (each.hex() if type(each) is float else each for each in told)  # -0.0, too
        return place.name, len(arguments), modes(), *map(type, told), *exact

    def _keep(self, key: tuple[object, ...], value: Any) -> None:
        nbytes = _nbytes_of(value)
        if nbytes is None or nbytes > self._room_nbytes or len(self._kept) == MAX_TABLES:
            return
        self._room_nbytes -= nbytes
        self._kept[key] = _copy_of(value)


_Called = tuple[dict[str, Any], str, Any]  # in what, by what name, and what that was


def _called_by(function: types.FunctionType, library: str) -> Iterator[_Called]:
    """Tell what a function of a library may call by the names in its code, and what that calls in the library.
    Raises nothing; a name that an attribute of something else has as well is told too."""
    seen, todo = {function}, [function]
    while todo:
        current = todo.pop()
        inside, names = current.__globals__, written_code(current).co_names
        modules = [inside[name] for name in names if type(inside.get(name)) is types.ModuleType]
        for space in (inside, *(module.__dict__ for module in modules)):
            for name in set(names) & space.keys():
                value = space[name]
                yield space, name, value
                if type(value) is types.FunctionType and value not in seen:
                    seen.add(value)
                    if str(value.__module__).partition(".")[0] == library:
                        todo.append(value)


def _is_trusted(called: _Called) -> bool:
    """Whether what is called is of an installed library that keeps no state."""
    value = called[2]
    if type(value) is types.FunctionType and not is_installed(written_code(value).co_filename):
        return False
    made_in = getattr(value, "__module__", None) or type(value).__module__
    return not callable(value) or is_trusted(made_in)


def _nbytes_of(value: Any) -> int | None:
    """Return the size of a table in memory of its own, or of a tuple of such; None if it is anything else."""
    if type(value) is tuple:
        sizes = [_nbytes_of(each) for each in value]
        return None if None in sizes else sum(sizes)  # type: ignore[arg-type]
    if type(value) is torch.Tensor:
        nbytes = value.nbytes
        is_plain = (
            value.device.type == "cpu"
            and value.layout is torch.strided
            and value.is_contiguous()
            and not value.requires_grad
            and value._base is None
            and value.untyped_storage().nbytes() == nbytes
        )
        return nbytes if is_plain else None
    if (numpy := sys.modules.get("numpy")) and type(value) is numpy.ndarray:
        flags = value.flags
        is_plain = (
            flags.owndata and flags.c_contiguous and flags.writeable and value.dtype.kind == "f"
        )
        return int(value.nbytes) if is_plain else None
    return 0 if type(value) in (int, float) else None


def _copy_of(value: Any) -> Any:
    if type(value) is tuple:
        return tuple(map(_copy_of, value))
    if type(value) is torch.Tensor:
        return value.clone()
    return value if type(value) in (int, float) else value.copy()


def _are_same(a: Any, b: Any) -> bool:
    """Whether two tables are, bit by bit."""
    if type(a) is not type(b):
        return False
    if type(a) is tuple:
        return len(a) == len(b) and all(map(_are_same, a, b))
    if type(a) is torch.Tensor:
        if (a.dtype, a.shape, a.stride()) != (b.dtype, b.shape, b.stride()):
            return False
        return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))
    if type(a) in (int, float):
        return bool(a == b)
    told = ((each.dtype, each.shape, each.strides, each.tobytes()) for each in (a, b))
    return next(told) == next(told)
