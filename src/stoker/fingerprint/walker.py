"""Walks over everything that can be reached from a value, and hashes it on the way.

Promise: what is reached once or a hundred times is hashed once; a cycle ends; a copy hashes as its
original. How each kind of object is hashed is up to its handler.
Ban: no guess. What cannot be looked into raises Unwatchable.
"""

import collections
import ctypes
import hashlib
import os
import pathlib
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from stoker.clock import Deadline
from stoker.fingerprint.written import WrittenPages
from stoker.shared_tensors import SharedTensors
from stoker.trusted import is_trusted

# Exactly of these classes, whose text tells all; what a class of the script's adds is walked.
BY_REPR = frozenset({
    int, float, complex, bool, type(None), type(Ellipsis), range, pathlib.PosixPath,
    pathlib.PurePosixPath, torch.dtype, torch.device, torch.layout, torch.Size, torch.memory_format,
})  # fmt: skip
TRAIL_LENGTH = 2000
LARGE_NBYTES = 16 << 20  # not copied only to be looked at


_SHORT = 1024  # bytes that are rather copied than hashed by a call of their own
_CONTAINERS = frozenset({dict, list, tuple, set, frozenset, collections.OrderedDict})
_CODE = (types.FunctionType, type, types.ModuleType)
# Attributes that libraries' objects write to themselves while they work, and never read back: MONAI's readers
# note the files that they have just read, and its transforms make a thread's own record of a setting when
# they are first used. Random transforms of these libraries note each call's numbers in themselves.
# Source: monai/data/image_reader.py and transforms/inverse.py, 1.6
# pandas' indexes, and its tables before pandas 3, keep what they have looked up of themselves, and who shares them.
_OF_READERS = {"filenames", "has_series"}
_LOOKED_UP = {"_cache", "_item_cache", "_obj", "_references"}
_GENERATOR = "R"  # the attribute of MONAI's random transforms that holds theirs
_RANDOM = {"albumentations", "monai"}
_NAMES = {*_OF_READERS, *_LOOKED_UP, "_tracing"}


class Unwatchable(Exception):
    """A job's state cannot be fingerprinted; says why, with the path to the object."""


class TooLarge(Unwatchable):
    """The job has more bytes of arrays and tensors than were allowed."""


@dataclass(slots=True)
class Apart:
    """What a walk meets and a fingerprint can leave out. memory: start and end of each array's and
    tensor's bytes; leaves_scratch_out: leave out what random transforms of libraries note of
    each call; not_private: where memory lies that others may change, once looked up; shared: the
    tensors in shared memory."""

    generators: list[Any] = field(default_factory=list)
    memory: list[tuple[int, int]] = field(default_factory=list)
    leaves_scratch_out: bool = False
    not_private: list[tuple[int, int]] | None = None
    shared: SharedTensors = field(default_factory=SharedTensors)


class Walker:
    """Hashes what one walk reaches. Its arguments are those of `fingerprint`."""

    def __init__(
        self,
        handlers: Sequence[tuple[type | tuple[type, ...], "Handler"]],
        deadline: Deadline,
        banned: frozenset[str],
        trail: dict[str, str] | None,
        lazy: set[str] | None,
        limit_nbytes: float,
        pages: WrittenPages | None = None,
        apart: "Apart | None" = None,
        shared: SharedTensors | None = None,
    ) -> None:
        self.pages = pages
        self.apart = apart
        self.shared = shared
        self._handlers = handlers
        self.banned = banned
        self.lazy = set() if lazy is None else lazy
        self._trail = {} if trail is None else trail
        self._limit_nbytes = self._left_nbytes = limit_nbytes
        self._num_to_trail = 0 if trail is None else TRAIL_LENGTH
        self._hash = _new_hash()  # of the object that is being walked
        self._deadline = deadline
        self._open: dict[int, int] = {}  # objects that are being walked -> how deep
        self._digests: dict[tuple[int, bool], bytes] = {}  # of those that were, inside code or not
        self._numbers: dict[int, int] = {}  # in the order in which the job's own graph meets them
        self._code_depth = 0  # inside how many functions, classes and modules
        self._keepalive: list[object] = []
        # polars draws numbers that no generator decides which can be compared: where a function may ask it to.
        self.meets_polars, self.may_draw = False, ""
        self._countdown = 0

    def digest(self) -> bytes:
        return self._hash.digest()

    def walk(self, value: Any, path: str) -> None:
        kind = type(value)
        if kind is str:
            self.put(b"s", value.encode("utf-8", "surrogatepass"))
        elif kind in BY_REPR:
            self.put(kind.__name__.encode(), repr(value).encode())
        elif kind is bytes:
            self.put(b"b", value)
        elif self._code_depth and kind in _CONTAINERS and not value:
            self.put(b"e", kind.__name__.encode())  # a module of torch's holds a dozen
        else:
            self._walk_object(value, kind, path)

    def _walk_object(self, value: Any, kind: type, path: str) -> None:
        """Hash an object by content, so that a copy hashes as its original.

        What a function reaches by a global is a copy, or is not, where the job was unpickled. Which
        of the job's own objects are one and the same does count.
        """
        self.look_at_clock(path)
        me = id(value)
        if not self._code_depth:
            self.put(b"again", str(self._numbers.setdefault(me, len(self._numbers))).encode())
        if me in self._open:
            self.put(b"cycle", str(len(self._open) - self._open[me]).encode())
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
            self.put(b"o", f"{kind.__module__}.{kind.__qualname__}".encode())
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
        for handled, handler in self._handlers:
            if isinstance(value, handled):
                is_code = issubclass(handled, _CODE) if isinstance(handled, type) else False
                self._code_depth += is_code
                try:
                    handler(self, value, path)
                except Unwatchable as error:
                    if not is_code or self._code_depth > 1 or str(error).startswith(path):
                        raise
                    raise type(error)(f"{path} reaches {error}") from None
                finally:
                    self._code_depth -= is_code
                return
        self._walk_instance(value, kind, path)

    def _walk_instance(self, value: Any, kind: type, path: str) -> None:
        self.walk(kind, f"type({path})")
        if _is_plain_python(kind):
            self.walk_attributes(value, kind, path)
            return
        if getattr(value, "nbytes", 0) > LARGE_NBYTES:  # pyarrow, pandas: copied to be looked at
            raise Unwatchable(f"{path}: a {kind.__qualname__} of {value.nbytes:,} bytes")
        try:
            reduced = value.__reduce_ex__(4)
        except Exception as error:  # whatever a stranger's raises
            name = f"{kind.__module__}.{kind.__qualname__}"
            why = f"{type(error).__name__}: {error}"
            raise Unwatchable(f"{path}: {name} cannot be looked into: {why}") from None
        if isinstance(reduced, str):
            self.walk(reduced, path)
            return
        self.walk(tuple(reduced[:2]), path)
        state: Any = reduced[2] if len(reduced) > 2 else None
        if type(state) is dict:
            self._walk_named(state, path)
        else:
            self.walk(state, path)
        for more in reduced[3:5]:
            self.walk_all(more or (), path)

    def walk_attributes(self, value: Any, kind: type, path: str) -> None:
        held = getattr(value, "__dict__", {})
        named = {name: each for name, each in held.items() if not _is_scratch(kind, name, each)}
        if self.apart and self.apart.leaves_scratch_out and _notes_calls(kind):
            # Some get a generator only once they are called: another object's, which is met there.
            named = {n: each for n, each in named.items() if not _is_note(each) and n != _GENERATOR}
            self.apart.generators += [held[_GENERATOR]] if _GENERATOR in held else []
        self._walk_named(named, path)
        for owner in kind.__mro__:
            if "__slots__" in vars(owner):  # their names may be mangled: by what reads them
                for name, slot in vars(owner).items():
                    if type(slot) is types.MemberDescriptorType:
                        self.put(b".", name.encode())
                        self.walk(getattr(value, slot.__name__, ...), f"{path}.{name}")

    def _walk_named(self, attributes: Mapping[Any, object], path: str) -> None:
        for name, attribute in attributes.items():
            self.put(b".", name.encode() if isinstance(name, str) else repr(name).encode())
            self.walk(attribute, f"{path}.{name}")

    def walk_all(self, values: Iterable[object], path: str) -> None:
        for i, value in enumerate(values):
            self.walk(value, f"{path}[{i}]")

    def walk_subclass(self, value: Any, path: str) -> None:
        """Hash what an instance of a user's list, dict, array or tensor class has beside items."""
        kind = type(value)
        self.walk_attributes(value, kind, path)
        self.walk(kind, f"type({path})")

    def put(self, tag: bytes, data: bytes | memoryview) -> None:
        if len(data) < _SHORT and type(data) is bytes:
            self._hash.update(b"%s %d %s" % (tag, len(data), data))
            return
        nbytes = data.nbytes if isinstance(data, memoryview) else len(data)
        self._hash.update(b"%s %d " % (tag, nbytes))
        self._hash.update(data)

    def weigh(self, nbytes: int, path: str) -> None:
        """Count memory before it is hashed. Raises TooLarge if that is more than allowed."""
        self._left_nbytes -= nbytes
        if self._left_nbytes < 0:
            sizes = f"{nbytes / (1 << 30):.1f} GiB, and all together more than"
            raise TooLarge(f"{path}: {sizes} {self._limit_nbytes / (1 << 30):.1f} GiB")

    def look_at_clock(self, path: str, now: bool = False) -> None:
        self._countdown -= 1
        if self._countdown < 0 or now:
            self._countdown = 256
            if self._deadline.is_over():
                raise Unwatchable(f"{path}: too large to watch at this pace")


Handler = Callable[[Walker, Any, str], None]
"""Hashes one kind of thing, found at a path."""


def _new_hash() -> "hashlib.blake2b":
    return hashlib.blake2b(digest_size=16)


def _is_plain_python(kind: type) -> bool:
    """Whether instances hold nothing but __dict__ and __slots__."""
    heap_type = 1 << 9  # Py_TPFLAGS_HEAPTYPE
    # From 3.12 on many types of Python's own that are C are heap types, too, as those of open files.
    if kind.__itemsize__ or kind.__basicsize__ != _nbytes_of_slots(kind):
        return False
    for base in kind.__mro__:
        if base is object:
            return True
        if not base.__flags__ & heap_type or (
            "__new__" in vars(base) and _in_c(vars(base)["__new__"])
        ):
            return base.__module__ in ("abc", "typing")
    return False


def _nbytes_of_slots(kind: type) -> int:
    """Return the size of an instance that holds nothing but __dict__, __weakref__ and __slots__."""
    slots = (vars(owner).values() for owner in kind.__mro__ if "__slots__" in vars(owner))
    num = sum(type(slot) is types.MemberDescriptorType for each in slots for slot in each)
    num += (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)  # below 0: in front of it
    return object.__basicsize__ + num * ctypes.sizeof(ctypes.c_void_p)


def _in_c(function: object) -> bool:
    return isinstance(function, types.BuiltinFunctionType)


def _is_scratch(kind: type, name: str, value: object) -> bool:
    """Whether an attribute of an object of this class may be left out of what it depends on."""
    if name not in _NAMES:
        return False
    if name in _LOOKED_UP:
        is_pandas = kind.__module__.partition(".")[0] == "pandas" and is_trusted("pandas")
        return is_pandas and (name != "_obj" or isinstance(value, weakref.ref))
    if name in _OF_READERS:
        return kind.__module__ == "monai.data.image_reader"
    traces = os.environ.get("MONAI_TRACE_TRANSFORM", "1") != "0"
    return isinstance(value, threading.local) and vars(value) in ({}, {"value": traces})


def _notes_calls(kind: type) -> bool:
    """Whether objects of this class note each call's numbers in themselves, as random transforms do."""
    return kind.__module__.partition(".")[0] in _RANDOM and is_trusted(kind.__module__)


def _is_note(value: Any) -> bool:
    """Whether a value is numbers or text alone, or a list, tuple or dict of such."""
    if isinstance(value, dict):
        return all(map(_is_note, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_note, value))
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        return True
    return value is None or isinstance(value, (bool, int, float, str, slice, range, torch.Tensor))
