"""A fingerprint of everything that a job can reach, to tell whether its state has moved.

Promise: two processes forked from one parent that give the same fingerprint make the same
batch from the same indices and the same three global generators.
Ban: no guess. What cannot be looked into (an open file, a C object without a state) and what
takes longer than allowed raises Unwatchable, and the job is then not portable.
"""

import collections
import functools
import hashlib
import io
import itertools
import mmap
import pathlib
import pickle
import random
import re
import sys
import threading
import types
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NoReturn

import torch

from stoker.clock import Deadline

# Their functions keep no state of their own between calls but the three global generators.
_TRUSTED = frozenset(sys.stdlib_module_names) | {"numpy", "PIL", "stoker", "torch", "torchvision"}
_BY_REPR = (
    int, float, complex, bool, type(None), type(Ellipsis), range, slice, re.Pattern,
    pathlib.PurePath, torch.dtype, torch.device, torch.layout, torch.Size, torch.memory_format,
)  # fmt: skip
_BY_NAME = (
    types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType,
    types.MethodWrapperType, types.ClassMethodDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType,
)  # fmt: skip

# Modules that keep state where no Python object shows it; empty: whatever is used of them.
_HIDDEN: dict[str, set[str]] = {
    "ctypes": set(),
    "cffi": set(),
    "decimal": {"getcontext", "setcontext", "localcontext"},
    "os": {"read", "write", "lseek", "readv", "writev", "umask", "chdir"},
}
CHUNK_NBYTES = 1 << 20  # hashed between two looks at the clock: about 1 ms
# A container of so many items is first tried by C code, in pieces of as many as take about 1 ms:
# a list of 50,000 (path, label) pairs takes 12 ms so and 300 ms item by item.
# Measured: tests/unit/purity/test_fingerprint.py prints both
NUM_BULK, NUM_PIECE = 64, 4096
TRAIL_LENGTH = 2000
LARGE_NBYTES = 16 << 20  # not copied only to be looked at
_BORING = {
    "__dict__", "__weakref__", "__doc__", "__annotations__", "__module__", "__orig_bases__",
    "__parameters__", "_abc_impl", "__abstractmethods__",
    "__slotnames__",  # copyreg keeps it there once an instance was pickled
}  # fmt: skip


class Unwatchable(Exception):
    """Why a job's state cannot be watched, with the path to the thing."""


def fingerprint(
    roots: dict[str, object],
    deadline: Deadline,
    banned: frozenset[str] = frozenset(),
    trail: dict[str, str] | None = None,
    lazy: set[str] | None = None,
) -> bytes:
    """16 bytes that change when anything reachable from `roots` changes.

    The three global generators are left out: they travel by themselves. banned: global names
    that no code in reach may use. trail: is given what was reached, inner things first, each with
    a digest, to tell where two fingerprints part; TRAIL_LENGTH of them. lazy: is given the modules that
    functions import when they are called. Raises Unwatchable.
    """
    walker = _Walker(deadline, banned, {} if trail is None else trail, trail is not None)
    walker.lazy = set() if lazy is None else lazy
    try:
        for name, root in roots.items():
            walker.walk(root, name)
    except Unwatchable:
        raise
    except RecursionError:
        raise Unwatchable("nested too deeply to watch") from None
    except Exception as error:  # whatever a stranger's __reduce_ex__ may raise
        raise Unwatchable(f"cannot be watched: {type(error).__name__}: {error}") from None
    return walker.digest()


def _new_hash() -> "hashlib.blake2b":
    return hashlib.blake2b(digest_size=16)


_CODE = (types.FunctionType, type, types.ModuleType)


class _Walker:
    def __init__(
        self, deadline: Deadline, banned: frozenset[str], trail: dict[str, str], has_trail: bool
    ) -> None:
        self._banned = banned
        self.lazy: set[str] = set()
        self._trail = trail
        self._num_to_trail = TRAIL_LENGTH if has_trail else 0
        self._hash = _new_hash()  # of the object that is being walked
        self._deadline = deadline
        self._open: dict[int, int] = {}  # objects that are being walked -> how deep
        self._digests: dict[tuple[int, bool], bytes] = {}  # of those that were, inside code or not
        self._numbers: dict[int, int] = {}  # in the order in which the job's own graph meets them
        self._code_depth = 0  # inside how many functions, classes and modules
        self._keepalive: list[object] = []
        self._walked: set[tuple[int, frozenset[str]]] = set()  # modules, as a function sees them
        self._countdown = 0

    def digest(self) -> bytes:
        return self._hash.digest()

    def walk(self, value: Any, path: str) -> None:
        kind = type(value)
        if kind is str:
            self._put(b"s", value.encode("utf-8", "surrogatepass"))
        elif kind in _BY_REPR or (isinstance(value, _BY_REPR) and not hasattr(value, "__dict__")):
            self._put(kind.__name__.encode(), repr(value).encode())
        elif kind is bytes:
            self._put(b"b", value)
        else:
            self._walk_object(value, kind, path)

    def _walk_object(self, value: Any, kind: type, path: str) -> None:
        """By content, so that a copy looks like the original: what a function reaches by a global
        is a copy, or is not, where the job was unpickled. Which of the job's own objects are one
        and the same does count.
        """
        self._look_at_clock(path)
        me = id(value)
        if not self._code_depth:
            self._put(b"again", str(self._numbers.setdefault(me, len(self._numbers))).encode())
        if me in self._open:
            self._put(b"cycle", str(len(self._open) - self._open[me]).encode())
            return
        seen = me, self._code_depth > 0
        if seen not in self._digests:
            self._digests[seen] = self._digest_of(value, kind, path)
            self._keepalive.append(value)  # or its id may come again within this walk
        self._hash.update(self._digests[seen])

    def _digest_of(self, value: Any, kind: type, path: str) -> bytes:
        outer, self._hash = self._hash, _new_hash()
        self._open[id(value)] = len(self._open)
        try:
            self._put(b"o", f"{kind.__module__}.{kind.__qualname__}".encode())
            self._handle(value, kind, path)
            digest = self._hash.digest()
        finally:
            self._hash = outer
            del self._open[id(value)]
        if self._num_to_trail:
            self._num_to_trail -= 1
            self._trail[path] = digest[:4].hex()
        return digest

    def _handle(self, value: Any, kind: type, path: str) -> None:
        for handled, handler in _HANDLERS:
            if isinstance(value, handled):
                is_code = issubclass(handled, _CODE) if isinstance(handled, type) else False
                self._code_depth += is_code
                try:
                    handler(self, value, path)
                finally:
                    self._code_depth -= is_code
                return
        self._walk_instance(value, kind, path)

    def _walk_instance(self, value: Any, kind: type, path: str) -> None:
        if _is_plain_python(kind):
            self._walk_attributes(value, kind, path)
            self.walk(kind, f"type({path})")
            return
        if getattr(value, "nbytes", 0) > LARGE_NBYTES:  # pyarrow, pandas: copied to be looked at
            raise Unwatchable(f"{path}: a {kind.__qualname__} of {value.nbytes:,} bytes")
        reduced = value.__reduce_ex__(4)
        self.walk(reduced if isinstance(reduced, str) else tuple(reduced[:3]), path)
        for more in reduced[3:5] if not isinstance(reduced, str) else ():
            self._walk_all(more or (), path)

    def _walk_attributes(self, value: Any, kind: type, path: str) -> None:
        for name, attribute in getattr(value, "__dict__", {}).items():
            self._put(b".", name.encode() if isinstance(name, str) else repr(name).encode())
            self.walk(attribute, f"{path}.{name}")
        for owner in kind.__mro__:
            slots = owner.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                    self.walk(getattr(value, name), f"{path}.{name}")

    def _walk_all(self, values: Iterable[object], path: str) -> None:
        for i, value in enumerate(values):
            self.walk(value, f"{path}[{i}]")

    # -- one kind of thing each ------------------------------------------------------------

    def sequence(self, value: Any, path: str) -> None:
        self._put(b"n", str(len(value)).encode())
        if not self._put_bulk(value, path):
            self._walk_all(value, path)
        self._walk_subclass(value, path)

    def mapping(self, value: Any, path: str) -> None:
        self._put(b"n", str(len(value)).encode())
        if not self._put_bulk(value.items(), path):
            for key, item in value.items():
                self.walk(key, f"{path} key")
                self.walk(item, f"{path}[{key!r}]" if isinstance(key, (str, int)) else path)
        self._walk_subclass(value, path)
        self.walk(getattr(value, "default_factory", None), f"{path}.default_factory")

    def _put_bulk(self, items: Collection[object], path: str) -> bool:
        """Hash many items at once; False where one of them is not plain, at whatever depth."""
        if len(items) < NUM_BULK:
            return False
        iterator = iter(items)
        while piece := list(itertools.islice(iterator, NUM_PIECE)):
            self._look_at_clock(path, now=True)
            plain = _as_plain(piece)
            if plain is None:
                return False  # what was hashed so far is hashed again: the same in every walk
            self._put(b"p", plain)
        return True

    def unordered(self, value: Any, path: str) -> None:
        if not all(isinstance(item, (str, bytes, *_BY_REPR)) for item in value):
            raise Unwatchable(f"{path}: a set of objects has no order to compare by")
        self._walk_all(value, path)  # in the order that code sees, which hashes decide
        self._walk_subclass(value, path)

    def _walk_subclass(self, value: Any, path: str) -> None:
        """What an instance of a user's list, dict, array or tensor class has beside its items."""
        kind = type(value)
        self._walk_attributes(value, kind, path)
        if not _is_trusted(kind.__module__) and kind.__module__ != "builtins":
            self.walk(kind, f"type({path})")

    def array(self, value: Any, path: str) -> None:
        self._put(b"a", f"{value.dtype} {value.shape} {value.strides}".encode())
        self._walk_subclass(value, path)
        if value.dtype.hasobject:
            self._walk_all(value.ravel().tolist(), path)
        elif _is_mapped(value):
            if value.flags.writeable:
                raise Unwatchable(f"{path}: a mapped file or shared memory that may be written")
            self._put(b"m", str(value.__array_interface__["data"][0]).encode())
        else:
            self._put_array(value, path)

    def _put_array(self, value: Any, path: str) -> None:
        """Hash an array's bytes, a row at a time where a flat view would need a copy."""
        if value.nbytes <= CHUNK_NBYTES or value.ndim == 0:
            self._put(b"d", value.tobytes())
        elif value.flags.c_contiguous:
            flat = value.reshape(-1).view("u1")
            for start in range(0, len(flat), CHUNK_NBYTES):
                self._look_at_clock(path, now=True)
                self._put(b"d", flat[start : start + CHUNK_NBYTES].data)
        else:
            for row in value:
                self._put_array(row, path)

    def tensor(self, value: torch.Tensor, path: str) -> None:
        if value.layout is not torch.strided or value.device.type != "cpu":
            raise Unwatchable(f"{path}: a {value.layout} tensor on {value.device}")
        self._put(b"t", f"{value.dtype} {tuple(value.shape)}".encode())
        self._walk_subclass(value, path)
        if value.is_shared():
            raise Unwatchable(f"{path}: a tensor that other processes may change")
        plain = value.detach().as_subclass(torch.Tensor)
        if not plain.is_contiguous():
            if plain.nbytes > LARGE_NBYTES:
                raise Unwatchable(f"{path}: a large tensor that is not contiguous")
            plain = plain.contiguous()
        self._put_array(plain.reshape(-1).view(torch.uint8).numpy(), path)

    def scalar(self, value: Any, path: str) -> None:
        self._put(b"x", f"{value.dtype}".encode() + value.tobytes())

    def generator(self, value: Any, path: str) -> None:
        if all(value is not known for known in _global_generators()):
            state = value.getstate() if isinstance(value, random.Random) else _state_of(value)
            self.walk(state, f"{path} state")

    def function(self, value: types.FunctionType, path: str) -> None:
        self._put(b"f", f"{value.__module__}.{value.__qualname__}".encode())
        if _is_trusted(value.__module__):
            return
        for code in _codes_in(value.__code__):
            self._put(b"c", code.co_code + repr(code.co_names).encode())
            self._walk_all((c for c in code.co_consts if not isinstance(c, types.CodeType)), path)
        self._walk_all(value.__defaults__ or (), f"{path} defaults")
        self._walk_all((value.__kwdefaults__ or {}).values(), f"{path} defaults")
        for cell in value.__closure__ or ():
            self.walk(_content(cell), f"{path} closure")
        names = {name for code in _codes_in(value.__code__) for name in code.co_names}
        if names & self._banned:
            raise Unwatchable(f"{path} uses {min(names & self._banned)}")
        for name in sorted(names):
            if name in value.__globals__:
                self._walk_global(value.__globals__[name], names, f"{value.__module__}.{name}")
            elif name in sys.modules:  # imported inside the function
                self.lazy.add(name)
                self._walk_global(sys.modules[name], names, name)
        self._walk_attributes(value, type(value), path)

    def _walk_global(self, value: object, names: set[str], path: str) -> None:
        if not isinstance(value, types.ModuleType):
            self.walk(value, path)
            return
        hidden = _HIDDEN.get(value.__name__)
        if hidden is not None and (not hidden or hidden & names):
            raise Unwatchable(f"{path} keeps state that nobody can see")
        if not _is_trusted(value.__name__) and (id(value), frozenset(names)) not in self._walked:
            self._walked.add((id(value), frozenset(names)))
            for name in sorted(names & vars(value).keys()):
                self._walk_global(vars(value)[name], names, f"{path}.{name}")

    def method(self, value: types.MethodType, path: str) -> None:
        self.walk(value.__func__, path)
        self.walk(value.__self__, f"{path}.__self__")

    def by_name(self, value: Any, path: str) -> None:
        self._put(b"c", f"{getattr(value, '__qualname__', value)}".encode())
        owner = getattr(value, "__self__", None)
        if owner is not None and not isinstance(owner, types.ModuleType):
            self.walk(owner, f"{path}.__self__")

    def wrapper(self, value: Any, path: str) -> None:
        for name in ("__func__", "fget", "fset", "func", "args", "keywords"):
            self.walk(getattr(value, name, None), f"{path}.{name}")

    def kind(self, value: type, path: str) -> None:
        self._put(b"k", f"{value.__module__}.{value.__qualname__}".encode())
        for owner in value.__mro__:
            if _is_trusted(owner.__module__):
                continue
            for name in sorted(vars(owner).keys() - _BORING):  # unpickled classes order them anew
                self._put(b".", name.encode())
                self.walk(vars(owner)[name], f"{owner.__qualname__}.{name}")

    def module(self, value: types.ModuleType, path: str) -> None:
        """A module that is itself a value: nobody can tell which of its names are used."""
        self._put(b"m", value.__name__.encode())
        if not _is_trusted(value.__name__):
            for name, attribute in vars(value).items():
                if not name.startswith("__"):
                    self.walk(attribute, f"{path}.{name}")

    def cached(self, value: Any, path: str) -> None:
        """functools.lru_cache: a miss changes what it holds, a hit does not."""
        info = value.cache_info()
        self._put(b"l", f"{info.misses} {info.currsize}".encode())
        self.walk(value.__wrapped__, path)

    def lock(self, value: Any, path: str) -> None:
        self._put(b"k", b"lock")

    def _put(self, tag: bytes, data: bytes | memoryview) -> None:
        nbytes = data.nbytes if isinstance(data, memoryview) else len(data)
        self._hash.update(b"%s %d " % (tag, nbytes))
        self._hash.update(data)

    def _look_at_clock(self, path: str, now: bool = False) -> None:
        self._countdown -= 1
        if self._countdown < 0 or now:
            self._countdown = 256
            if self._deadline.is_over():
                raise Unwatchable(f"{path}: too large to watch at this pace")


class _NotPlain(Exception):
    """A value that C code cannot hash by content."""


class _Plain(pickle.Pickler):
    """Pickles str, bytes, numbers, None and list, tuple, dict, set of these; nothing else."""

    def reducer_override(self, value: object) -> NoReturn:
        raise _NotPlain


def _as_plain(items: list[object]) -> memoryview | None:
    buffer = io.BytesIO()
    pickler = _Plain(buffer, protocol=4)
    pickler.fast = True  # no memo: bytes depend on values alone, and a cycle is too deep
    try:
        pickler.dump(items)
    except (_NotPlain, RecursionError, ValueError):  # the last: a cycle
        return None
    return buffer.getbuffer()


_LOCK_TYPES = (type(threading.Lock()), type(threading.RLock()))


def _handlers() -> Iterator[tuple[type | tuple[type, ...], Callable[[_Walker, Any, str], None]]]:
    numpy = sys.modules.get("numpy")
    yield (list, tuple, collections.deque), _Walker.sequence
    yield (dict, types.MappingProxyType), _Walker.mapping
    yield (set, frozenset), _Walker.unordered
    if numpy is not None:
        yield numpy.ndarray, _Walker.array
        yield numpy.generic, _Walker.scalar
        yield (numpy.random.Generator, numpy.random.RandomState), _Walker.generator
        yield numpy.random.BitGenerator, _Walker.generator
    yield torch.Tensor, _Walker.tensor
    yield (torch.Generator, random.Random), _Walker.generator
    yield types.FunctionType, _Walker.function
    yield types.MethodType, _Walker.method
    yield _BY_NAME, _Walker.by_name
    yield (functools.partial, property, classmethod, staticmethod), _Walker.wrapper
    yield type, _Walker.kind
    yield types.ModuleType, _Walker.module
    yield _LOCK_TYPES, _Walker.lock
    yield functools._lru_cache_wrapper, _Walker.cached


_HANDLERS = tuple(_handlers())


def _global_generators() -> list[object]:
    numpy = sys.modules.get("numpy")
    found: list[object] = [random._inst, torch.default_generator]
    if numpy is not None:
        found += [numpy.random.mtrand._rand, numpy.random.mtrand._rand._bit_generator]
    return found


def _state_of(generator: Any) -> object:
    if isinstance(generator, torch.Generator):
        return bytes(generator.get_state().numpy())
    if hasattr(generator, "bit_generator"):
        return generator.bit_generator.state
    if hasattr(generator, "get_state"):
        return generator.get_state(legacy=False)
    return generator.state


def _is_trusted(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in _TRUSTED


def _is_plain_python(kind: type) -> bool:
    """Whether instances hold nothing but __dict__ and __slots__."""
    heap_type = 1 << 9  # Py_TPFLAGS_HEAPTYPE
    for base in kind.__mro__:
        if base is object:
            return True
        if not base.__flags__ & heap_type or (
            "__new__" in vars(base) and _in_c(vars(base)["__new__"])
        ):
            return base.__module__ in ("abc", "typing")
    return False


def _in_c(function: object) -> bool:
    return isinstance(function, types.BuiltinFunctionType)


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    """A function's code and that of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes_in(constant)


def _is_mapped(array: Any) -> bool:
    """Whether an array shows a mapping, as token files do."""
    base = array
    while base is not None:
        if isinstance(base, mmap.mmap):
            return True
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
    return False
