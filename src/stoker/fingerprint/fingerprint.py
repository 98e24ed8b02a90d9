"""Computes a fingerprint of everything that a job can reach, to tell whether its state has changed.

Promise: two processes forked from one parent that give the same fingerprint make the same batch
from the same indices and the same three global generators.
Ban: no guess. What cannot be looked into (an open file, a C object without a state) and what takes
longer than allowed raises Unwatchable, and the job is then not portable.
"""

import collections
import ctypes
import functools
import logging
import math
import mmap
import random
import re
import sys
import threading
import types
from collections.abc import Iterator

import torch

from stoker.clock import Deadline
from stoker.fingerprint import code, data
from stoker.fingerprint.walker import Apart, Handler, TooLarge, Unwatchable, Walker
from stoker.fingerprint.written import WrittenPages
from stoker.shared_tensors import SharedTensors

__all__ = ["Apart", "TooLarge", "Unwatchable", "fingerprint"]

_BY_NAME = (
    types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType,
    types.MethodWrapperType, types.ClassMethodDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType,
)  # fmt: skip


def fingerprint(
    roots: dict[str, object],
    deadline: Deadline,
    banned: frozenset[str] = frozenset(),
    trail: dict[str, str] | None = None,
    lazy: set[str] | None = None,
    limit_nbytes: float = math.inf,
    pages: WrittenPages | None = None,
    apart: Apart | None = None,
    shared: SharedTensors | None = None,
) -> bytes:
    """Return 16 bytes that change when anything reachable from `roots` changes.

    The three global generators are left out: they travel by themselves. banned: global names that
    no code in reach may use. trail: is given what was reached, inner things first, each with a
    digest, to tell where two fingerprints differ; TRAIL_LENGTH of them. lazy: is given the modules
    that functions import when they are called. limit_nbytes: of arrays and tensors, mapped files
    left out. pages: watch large arrays and tensors by page, in place of reading them; then the
    fingerprint is comparable only with others of this process. apart: is given the generators in
    reach, which are then not hashed, and where arrays and tensors lie. shared: whoever asks compares
    what these hold. Raises Unwatchable, TooLarge beyond the limit.
    """
    walker = Walker(
        (*_HANDLERS, *_of_imported()), deadline, banned, trail, lazy, limit_nbytes, pages, apart,
        shared,
    )  # fmt: skip
    try:
        if pages is not None:
            pages.look()
            walker.put(b"w", str(pages.number).encode())
        for name, root in roots.items():
            walker.walk(root, name)
        if walker.meets_polars and walker.may_draw:
            raise Unwatchable(f"{walker.may_draw} may draw numbers of polars' own")
    except Unwatchable:
        raise
    except RecursionError:
        raise Unwatchable("nested too deeply to watch") from None
    except Exception as error:  # whatever a stranger's __reduce_ex__ may raise
        raise Unwatchable(f"cannot be watched: {type(error).__name__}: {error}") from None
    return walker.digest()


_LOCK_TYPES = (type(threading.Lock()), type(threading.RLock()))


def _handlers() -> Iterator[tuple[type | tuple[type, ...], Handler]]:
    numpy = sys.modules.get("numpy")
    yield (list, tuple, collections.deque), data.sequence
    yield (dict, types.MappingProxyType), data.table
    yield (set, frozenset), data.unordered
    yield slice, data.span
    yield re.Pattern, data.pattern
    if numpy is not None:
        yield numpy.ndarray, data.array
        yield numpy.generic, data.scalar
        yield (numpy.random.Generator, numpy.random.RandomState), data.generator
        yield numpy.random.BitGenerator, data.generator
        yield mmap.mmap, data.mapping
    yield torch.Tensor, data.tensor
    yield ctypes.Structure.__mro__[-2], data.borrowed
    yield (torch.Generator, random.Random), data.generator
    yield types.FunctionType, code.function
    yield types.MethodType, code.method
    yield _BY_NAME, code.by_name
    yield (functools.partial, property, classmethod, staticmethod), code.wrapper
    yield type, code.kind
    yield types.ModuleType, code.module
    yield _LOCK_TYPES, code.lock
    yield threading.local, code.thread_local
    yield functools._lru_cache_wrapper, code.cached
    yield logging.Logger, code.logger
    if numpy is not None:
        yield numpy.ufunc, code.ufunc


_HANDLERS = tuple(_handlers())
_OF_LIBRARIES = (
    ("polars", "DataFrame", data.of_polars),
    ("polars", "Series", data.of_polars),
    ("h5py", "HLObject", data.of_h5py),
)


def _of_imported() -> Iterator[tuple[type, Handler]]:
    for module, name, handler in _OF_LIBRARIES:
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type):
            yield kind, handler
