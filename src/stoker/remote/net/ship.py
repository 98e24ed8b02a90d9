"""Pickles a job once on this machine, and unpickles it in processes on other machines.

Promise: what is unpickled elsewhere is as spawn would make it, `__main__` by value; large arrays
and tensors travel beside the stream, each by the hash of its content, so that what a machine has
need not be sent again. If a job cannot be pickled, the error names the attribute.
Runs user code (`__reduce__`): only in a process that was forked for it.
"""

import collections
import contextlib
import ctypes
import importlib
import io
import itertools
import json
import mmap
import os
import pickle
import socket
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import cloudpickle
import numpy as np
import torch
import xxhash

from stoker.clock import Deadline
from stoker.fingerprint.code import held_by
from stoker.fingerprint.fingerprint import TooLarge, Unwatchable, fingerprint
from stoker.fingerprint.mapped import (
    FileRange,
    NotTheSame,
    address_of,
    file_of,
    mapping_of,
    opened,
)
from stoker.local.sizing import available_nbytes
from stoker.remote.engines.processes import CODE_FOLDER
from stoker.travels import sent_names, stays
from stoker.trusted import put_in
from stoker.wire.batch_codec import LargeBuffers
from stoker.worker.job import Job, note_surroundings

# Smaller buffers stay in the stream: a hash and a message each would cost more.
LARGE_NBYTES = 1 << 20
FRAC_OF_FREE = 0.5  # memory that a packed job may take, beside the script's own copy
_LIBRARIES = "libraries"  # in a trail
SEARCH_S = 5.0  # for the attribute that cannot be pickled
# The script; by the second name where multiprocessing has imported it anew.
MAIN = ("__main__", "__mp_main__")
_ALIGN = 64


class CannotGo(Exception):
    """Raised if a job cannot leave this machine; says why."""


class Part(NamedTuple):
    """A piece of a job. digest: of its content."""

    digest: str
    nbytes: int


@dataclass(frozen=True)
class Surroundings:
    """State of the script's process that a dataset may depend on, beside the objects it reaches.

    JSON can carry it: it is entered before anything of the script's is imported or unpickled.
    """

    environ: dict[str, str]
    folder: str
    modules_path: list[str]
    default_dtype: str
    is_deterministic: bool
    is_grad_enabled: bool

    @classmethod
    def now(cls) -> "Surroundings":
        sent = sent_names()
        return cls(
            {k: v for k, v in os.environ.items() if k in sent or not stays(k, v)},
            str(Path.cwd()),
            list(sys.path),
            str(torch.get_default_dtype()).removeprefix("torch."),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_grad_enabled(),
        )

    def enter(self) -> None:
        """Make this process like the script's, as far as this machine has what that needs."""
        for name in [name for name, value in os.environ.items() if not stays(name, value)]:
            if name not in self.environ:
                del os.environ[name]
        os.environ.update(self.environ)
        if Path(self.folder).is_dir():
            os.chdir(self.folder)
        code = os.environ.pop(CODE_FOLDER, "")  # shipped, and so first, as the script's own is
        known = {*sys.path, code}
        here = [f for f in self.modules_path if f not in known and Path(f or ".").exists()]
        sys.path[:0] = [code, *here] if code else here
        torch.set_default_dtype(getattr(torch, self.default_dtype))
        if torch.are_deterministic_algorithms_enabled() != self.is_deterministic:
            torch.use_deterministic_algorithms(self.is_deterministic)  # imports for 3 s
        torch.set_grad_enabled(self.is_grad_enabled)


@dataclass(frozen=True)
class Manifest:
    """A packed job. parts: the stream, then the buffers; starts: where each lies in the memfd that
    they come in. fingerprint, trail: of the job at iter(), on the trainer's machine; in the trail also
    what the script has put into libraries."""

    fingerprint: str
    trail: dict[str, str]
    surroundings: Surroundings
    parts: tuple[Part, ...]
    starts: tuple[int, ...]
    lazy_modules: list[str]  # that the job's functions import when they are called, and did

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, data: bytes) -> "Manifest":
        value = json.loads(data)
        parts = tuple(Part(*part) for part in value["parts"])
        looks = value["fingerprint"], value["trail"]
        surroundings = Surroundings(**value["surroundings"])
        return cls(*looks, surroundings, parts, tuple(value["starts"]), value["lazy_modules"])


# -- on the trainer's machine --------------------------------------------------------------------


def ship(job: Job, sock: socket.socket) -> None:
    """Pack a job, as the packer process: send the manifest and the bytes, or why there are none."""
    try:
        manifest, fd = _packed(job)
    except CannotGo as error:
        _send(sock, json.dumps({"cannot": str(error)}).encode())
        return
    _send(sock, manifest.to_json(), fd)
    os.close(fd)


def _send(sock: socket.socket, line: bytes, *fds: int) -> None:
    with contextlib.suppress(OSError):  # the receiver is gone, or wants it no more
        socket.send_fds(sock, [b"\0"], fds)
        sock.sendall(line)


def _packed(job: Job) -> tuple[Manifest, int]:
    """Pack a job; returns its manifest and a memfd with the parts. Raises CannotGo."""
    note_surroundings()
    trail: dict[str, str] = {}
    lazy: set[str] = set()
    looks = _looks(job, trail, lazy)
    buffers: list[memoryview] = []
    stream = _stream(job, buffers)
    pieces = [memoryview(stream), *buffers]
    parts = tuple(Part(xxhash.xxh3_128_hexdigest(piece), piece.nbytes) for piece in pieces)
    starts = [0, *itertools.accumulate(-(-p.nbytes // _ALIGN) * _ALIGN for p in parts)][:-1]
    manifest = Manifest(looks.hex(), trail, Surroundings.now(), parts, tuple(starts), sorted(lazy))
    fd = os.memfd_create("stoker-job", os.MFD_CLOEXEC)
    for offset, piece in zip(starts, pieces, strict=True):
        _write_all(fd, piece, offset)
    return manifest, fd


def _looks(job: Job, trail: dict[str, str], lazy: set[str]) -> bytes:
    """Return the job's fingerprint. Raises CannotGo."""
    # Without a seed that both have, strings hash otherwise in every process.
    banned = frozenset() if os.environ.get("PYTHONHASHSEED") else frozenset({"hash"})
    limit = FRAC_OF_FREE * available_nbytes()
    try:
        looks = job.fingerprint(
            Deadline(None), banned=banned, trail=trail, lazy=lazy, limit_nbytes=limit
        )
        trail[_LIBRARIES] = _put_in()
        return looks
    except TooLarge as error:
        raise CannotGo(f"{error}, half of the memory that is free") from None
    except Unwatchable as error:
        _stream(job, [])  # where it cannot be pickled either, that tells the place better
        raise CannotGo(f"its state cannot be compared between machines: {error}") from None


def _put_in() -> str:
    """Digest what the script has put into libraries by now: beside the job's fingerprint, with which
    workers' later looks are compared, for they leave this out."""
    return fingerprint({_LIBRARIES: put_in(fresh=True)}, Deadline(None)).hex()


def _stream(job: Job, buffers: list[memoryview]) -> bytes:
    """Pickle a job; large buffers are appended to `buffers`. Raises CannotGo."""
    try:
        return dumps(job, buffers)
    except Exception as error:
        raise CannotGo(why_not_picklable(job, error)) from None


def _write_all(fd: int, piece: memoryview, offset: int) -> None:
    while piece.nbytes:
        num_written = os.pwrite(fd, piece, offset)
        piece, offset = piece[num_written:], offset + num_written


class _Packer(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Pickles functions and classes of `__main__` by value, plain tensors as buffers, shared as
    they are, and mapped files by name."""

    def __init__(self, file: io.BytesIO, buffers: list[memoryview]) -> None:
        super().__init__(file, protocol=5, buffer_callback=LargeBuffers(buffers, LARGE_NBYTES))
        self._storages: dict[int, torch.UntypedStorage] = {}  # or one wrapper each would be pickled
        self.main_classes: list[type] = []  # met on the way

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if kind is torch.Tensor and _is_plain(value):
            storage = value.untyped_storage()
            storage = self._storages.setdefault(storage._cdata, storage)
            place = int(value.storage_offset()), tuple(value.shape), value.stride()
            return _tensor, (storage, value.dtype, *place)
        if kind is torch.UntypedStorage and value.device.type == "cpu":
            return _storage, (pickle.PickleBuffer(_bytes_of(value)),)
        if isinstance(value, np.ndarray) and (shown := mapping_of(value)) is not None:
            return _shown(value, shown)
        if kind is mmap.mmap:
            return _mapping, (_file_of(value), value.tell())
        if kind is types.CodeType:
            return _code, (*self.dispatch_table[kind](value), value.co_filename)
        if isinstance(value, type) and value.__module__ in MAIN:
            self.main_classes.append(value)
        return super().reducer_override(value)


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not tensor.requires_grad
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor.__dict__
    )


def _bytes_of(storage: torch.UntypedStorage) -> bytearray | memoryview:
    if not storage.nbytes():
        return bytearray()
    array = (ctypes.c_ubyte * storage.nbytes()).from_address(storage.data_ptr())
    return memoryview(array).cast("B")


def _storage(data: Any) -> torch.UntypedStorage:
    view = memoryview(data)
    if not view.nbytes:
        return torch.UntypedStorage(0)
    if view.readonly:  # it was small, and is in the stream
        view = memoryview(bytearray(view))
    return torch.frombuffer(view, dtype=torch.uint8).untyped_storage()


def _tensor(
    storage: torch.UntypedStorage, dtype: torch.dtype, offset: int, size: Any, stride: Any
) -> torch.Tensor:
    return torch.empty(0, dtype=dtype, device="cpu").set_(storage, offset, size, stride)


def _code(make: Any, parts: tuple[Any, ...], file: str) -> types.CodeType:
    """Make a code object that names its file, for tracebacks: cloudpickle 3.1.3 forgets it."""
    made: types.CodeType = make(*parts)
    return made.replace(co_filename=file)


# Mapped files travel by name: a host maps its own, if that is the same file.


def _file_of(mapping: mmap.mmap) -> FileRange:
    file = file_of(mapping)
    if file is None:
        raise pickle.PicklingError("shared memory, or a mapped file that may be written or is gone")
    return file


def _mapping(file: FileRange, position: int) -> mmap.mmap:
    made = opened(FileRange(*file))
    made.seek(position)
    return made


def _shown(array: Any, shown: mmap.mmap) -> tuple[Any, ...]:
    """Reduce an array over a mapped file to one over the same mapping. Raises PicklingError."""
    _file_of(shown)
    if type(array) not in (np.ndarray, np.memmap):
        raise pickle.PicklingError(f"a {type(array).__qualname__} that shows a mapped file")
    first = array.__array_interface__["data"][0] - address_of(shown)
    state = getattr(array, "__dict__", {})
    return _array, (type(array), shown, array.dtype, array.shape, array.strides, first, state)


def _array(
    kind: type, shown: mmap.mmap, dtype: Any, shape: Any, strides: Any, first: int, state: Any
) -> Any:
    made: Any = np.ndarray(shape, dtype, buffer=shown, offset=first, strides=strides).view(kind)
    if state:
        made.__dict__.update(state)
    return made


def dumps(value: object, buffers: list[memoryview]) -> bytes:
    """Pickle a value; large buffers are appended to `buffers`. Raises what pickling raises.

    The classes of `__main__` that the value reaches come after it: see `_be_main`.
    """
    main = sys.modules["__main__"]
    if main.__name__ == "__mp_main__":
        cloudpickle.register_pickle_by_value(main)
    file = io.BytesIO()
    packer = _Packer(file, buffers)
    packer.dump((value, packer.main_classes))  # in this order: the list is whole by then
    return file.getvalue()


def _be_main(classes: list[type]) -> None:
    """Put classes into `__main__`, as the trainer has them: batches and errors name them there."""
    main = sys.modules["__main__"]
    for kind in classes:
        if kind.__qualname__.isidentifier():
            setattr(main, kind.__qualname__, kind)


def why_not_picklable(job: Job, error: Exception) -> str:
    """Say which attribute of a job cannot be pickled, as far as it is found within SEARCH_S.

    error: what pickling the whole raised.
    """
    path, culprit, last = "the job", cast(object, job), error
    deadline = Deadline(SEARCH_S)
    inside: Iterable[tuple[str, object]] = _parts_of(job)
    while not deadline.is_over():
        for more, inner in inside:
            failure = _failure(inner)
            if failure is not None:
                path, culprit, last = more if culprit is job else path + more, inner, failure
                break
        else:
            break
        inside = _inside(culprit)
    kind = type(culprit)
    what = getattr(culprit, "__qualname__", f"{kind.__module__}.{kind.__qualname__}")
    return f"{path}: {what} cannot be pickled: {type(last).__name__}: {last}"


def _parts_of(job: Job) -> Iterator[tuple[str, object]]:
    return zip(job._fields, job, strict=True)


def _failure(value: object) -> Exception | None:
    try:
        dumps(value, [])
    except Exception as error:
        return error
    return None


def _inside(value: Any) -> Iterator[tuple[str, object]]:
    """Iterate what a value holds, each with its suffix to the value's name, as `.x` or `[0]`."""
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, (list, tuple, collections.deque)):
        yield from ((f"[{i}]", item) for i, item in enumerate(value))
    elif isinstance(value, np.ndarray):
        yield from ((f"[{i}]", item) for i, item in np.ndenumerate(value) if value.dtype.hasobject)
    elif isinstance(value, types.FunctionType):
        yield from ((f"'s {name}", held) for name, held in held_by(value))
        for name in value.__code__.co_names:
            if name in value.__globals__ and value.__module__ in MAIN:
                yield f"'s {name}", value.__globals__[name]
    else:
        for name in ("__self__", "func", "args", "keywords", *_slots_of(type(value))):
            if hasattr(value, name):
                yield f".{name}", getattr(value, name)
        yield from ((f".{name}", item) for name, item in getattr(value, "__dict__", {}).items())
        if type(value).__module__ in MAIN:
            yield "'s class", type(value)


def _slots_of(kind: type) -> Iterator[str]:
    for owner in kind.__mro__:
        slots = owner.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots


# -- on the worker's machine ---------------------------------------------------------------------


def unpack(manifest: Manifest, pieces: Sequence[memoryview]) -> Job:
    """Unpickle a job from its parts, in surroundings like the script's. The buffers become its
    arrays' own memory.

    Raises what unpickling raises, and CannotGo if the job is not what it is at the trainer's:
    its modules here are others, or were changed by the script.
    """
    manifest.surroundings.enter()
    for name in manifest.lazy_modules:
        with contextlib.suppress(ImportError):  # the job will say it better
            importlib.import_module(name)
    try:
        job, main_classes = pickle.loads(pieces[0], buffers=pieces[1:])
    except NotTheSame as error:
        raise CannotGo(str(error)) from None
    assert isinstance(job, Job)
    _be_main(main_classes)
    note_surroundings()
    trail: dict[str, str] = {}
    looks = job.fingerprint(Deadline(None), trail=trail).hex()
    trail[_LIBRARIES] = _put_in()
    if looks != manifest.fingerprint or trail[_LIBRARIES] != manifest.trail[_LIBRARIES]:
        raise CannotGo(_where_they_part(manifest.trail, trail))
    return job


def _where_they_part(theirs: dict[str, str], ours: dict[str, str]) -> str:
    """Say what differs between two machines: the innermost thing."""
    what = next((path for path, digest in theirs.items() if ours.get(path) != digest), "the job")
    return (
        f"{what} is not there what it is at the trainer (another version of a module, a global of "
        "one that the script has changed, or a set in another order)"
    )
