"""Keeps the tables that audio libraries make anew at each call: filter banks, and kernels of resampling.

They depend on numbers alone: torchaudio makes a kernel of 160 x 475 weights for each `functional.resample`, and a
filter bank for each `MelSpectrogram` that a `__getitem__` makes. Measured: benchmarks/media_parts.py

Promise: what is given is what the function gives, in memory of its own. Whatever is not plain numbers, was warned of, or
would have called anything that is not its library's own goes to the function itself.
Ban: only in a process of ours; never lets an error of ours into the script.
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
from stoker.redirect import is_being_imported, is_of_library, redirect, written_code
from stoker.reports.metrics import FastPlace
from stoker.stack import passed_over
from stoker.trusted import is_trusted

_TABLES = [
    ("torchaudio.functional.functional", "_get_sinc_resample_kernel"),
    ("torchaudio.functional.functional", "melscale_fbanks"),
    ("torchaudio.functional.functional", "linear_fbanks"),
    ("torchaudio.compliance.kaldi", "get_mel_banks"),
    ("librosa.filters", "mel"),
]
# Of all tables of a worker. A script has a handful of sampling rates and one or two filter banks, of 0.3 MB each; one
# that draws a rate for each sample is not to fill the memory.
MAX_TABLES, MAX_NBYTES = 64, 16 << 20
_PLAIN = (int, float, str, bool, type(None), torch.dtype, torch.device, type)
_OF_NUMPY = ("ufunc", "_ArrayFunctionDispatcher")  # kinds of its functions
# How to ask a module for a name, the name, and what that gave.
_Called = tuple[Callable[[str], Any], str, Any]


class Tables:
    """A worker's tables."""

    def __init__(self, wish: FastWish) -> None:
        self._wish = wish
        self._thread = threading.get_ident()
        self._num_modules = 0
        self._places: dict[str, Place] = {}
        self._kept: dict[tuple[object, ...], Any] = {}  # what was wanted last comes last
        self._kept_nbytes = 0
        self._odd: set[tuple[object, ...]] = set()  # made each time: warned of, or no plain table

    def look(self) -> None:
        """Redirect what has been imported since the last look."""
        if len(sys.modules) == self._num_modules:
            return
        self._num_modules = len(sys.modules)
        for module, name in _TABLES:
            shown = f"{module}.{name}"
            if shown in self._places or is_being_imported(sys.modules.get(module)):
                continue
            place = self._places[shown] = Place(shown, self._wish)
            try:
                self._redirect(place, sys.modules[module], name)
            except Exception as error:
                place.leave(f"stoker failed: {type(error).__name__}: {error}")

    def news(self) -> list[FastPlace]:
        """Return what is new since the last call."""
        return news_of(list(self._places.values()))

    def _redirect(self, place: Place, module: types.ModuleType, name: str) -> None:
        function = vars(module).get(name)
        if type(function) is not types.FunctionType or not is_of_library(module.__name__, function):
            return  # of another version, or the script's
        called = list(_called_by(function))
        if all(_is_known(value) for _, _, value in called):
            redirect(module, name, functools.partial(self._hook, place, called))

    @passed_over
    def _hook(
        self,
        place: Place,
        called: list[_Called],
        original: Callable[..., Any],
        arguments: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        key = self._key_of(place, called, arguments, named)
        if key is None or key in self._odd:
            return original(*arguments, **named)
        kept = self._kept.get(key)
        if kept is not None and not place.must_check():
            self._kept[key] = self._kept.pop(key)
            return _copy_of(kept)
        warn = warnings.warn
        # In C, so that no frame is added, which would make a warning name another line.
        counted: Any = functools.lru_cache(maxsize=0)(warn)
        warnings.warn = counted
        try:
            value = original(*arguments, **named)
        finally:
            warnings.warn = warn
        with contextlib.suppress(Exception):  # ours
            if kept is not None:
                place.note(_are_same(value, kept))
            elif counted.cache_info().misses or not _is_silent(original, arguments, named):
                self._odd.add(key)
            else:
                self._keep(key, value)
        return value

    def _key_of(
        self,
        place: Place,
        called: list[_Called],
        arguments: tuple[Any, ...],
        named: dict[str, Any],
    ) -> tuple[object, ...] | None:
        """Return all that a table depends on; None: it is not ours to serve."""
        if (
            place.why
            or len(self._odd) > MAX_TABLES
            or threading.get_ident() != self._thread
            or is_traced()
            or has_modes()
        ):
            return None
        told = [*arguments, *(each for pair in sorted(named.items()) for each in pair)]
        if any(type(each) not in _PLAIN for each in told):
            return None
        if any(get(name) is not value for get, name, value in called):
            return None  # the script has replaced something since
        exact = (each.hex() if type(each) is float else each for each in told)  # -0.0, too
        return place.name, len(arguments), modes(), *map(type, told), *exact

    def _keep(self, key: tuple[object, ...], value: Any) -> None:
        nbytes = _nbytes_of(value)
        if nbytes is None or nbytes > MAX_NBYTES:
            self._odd.add(key)
            return
        self._kept[key] = _copy_of(value)
        self._kept_nbytes += nbytes
        while len(self._kept) > MAX_TABLES or self._kept_nbytes > MAX_NBYTES:
            dropped = self._kept.pop(next(iter(self._kept)))
            self._kept_nbytes -= _nbytes_of(dropped) or 0


def _called_by(function: types.FunctionType) -> Iterator[_Called]:
    """Tell what a function of a library may call by the names in its code, and what that calls in the library. A
    name that some other module has as well is told too."""
    library = function.__module__.partition(".")[0]
    seen, todo = {function}, [function]
    while todo:
        current = todo.pop()
        inside, names = current.__globals__, set(written_code(current).co_names)
        gets: list[Callable[[str], Any]] = [inside.get]
        for name in names:
            if type(module := inside.get(name)) is not types.ModuleType:
                continue
            # Some of librosa's hold a name only once they were asked for it; NumPy warns of being asked.
            is_librarys = module.__name__.partition(".")[0] == library
            gets.append(functools.partial(_of_module, module) if is_librarys else vars(module).get)
        for get in gets:
            for name in names:
                value = get(name)
                if value is None:
                    continue
                yield get, name, value
                if type(value) is types.FunctionType and value not in seen:
                    seen.add(value)
                    if str(value.__module__).partition(".")[0] == library:
                        todo.append(value)


def _of_module(module: types.ModuleType, name: str) -> Any:
    return getattr(module, name, None)


def _is_known(value: Any) -> bool:
    """Whether something is no function at all, or one of an installed library that keeps no state."""
    if not callable(value):
        return True
    kind = type(value)
    made_in = getattr(value, "__module__", None) or kind.__module__
    if kind is types.FunctionType:
        return is_installed(written_code(value).co_filename) and is_trusted(made_in)
    is_compiled = kind is types.BuiltinFunctionType or kind.__name__ in _OF_NUMPY
    return (is_compiled or isinstance(value, type)) and is_trusted(made_in)


def _is_silent(
    original: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
) -> bool:
    """Whether NumPy has nothing to say of the arithmetic, which it says from C: the table is made once more."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not str(original.__module__).startswith("librosa"):
        return True
    with numpy.errstate(all="raise"), contextlib.suppress(FloatingPointError):
        original(*arguments, **named)
        return True
    return False


def _nbytes_of(value: Any) -> int | None:
    """Return the size of a table in memory of its own, or of a tuple of such; None if it is anything else."""
    if type(value) is tuple:
        sizes = [_nbytes_of(each) for each in value]
        return None if None in sizes else sum(sizes)  # type: ignore[arg-type]
    if type(value) is torch.Tensor:
        is_plain = (
            value.device.type == "cpu"
            and value.layout is torch.strided
            and value.is_contiguous()
            and not value.requires_grad
            and value._base is None
            and value.untyped_storage().nbytes() == value.nbytes
        )
        return value.nbytes if is_plain else None
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
