"""Tells the storage process which files will be asked for: by the trainer's sampler, and by a worker's batch.

Sample i's files are those that the dataset's own list has at position i, else those that were opened
when sample i was made before.
Promise: never waits, never raises, draws from no generator that anybody sees; a wrong guess costs a
fetch. Owner: the thread that iterates, of a process; a forked child has a connection of its own.
"""

import contextlib
import json
import os
import socket
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from stoker import config, descriptors
from stoker.clock import now_s
from stoker.storage.asking.control import connect

AHEAD_SAMPLES = 4096  # told ahead by the trainer: 1.4 s of 1 Gbit/s in files of 40 KB
_AT_ONCE = 256  # samples in a message
_MAX_UNSENT_NBYTES = 4 << 20
LOOKS_EACH_S = 0.005  # a worker that makes a batch, whether another one has come
_MAX_DEPTH = 4  # of wrappers around a dataset
_LOOKED_AT = 4  # elements of a list, to see whether it holds paths

FilesOf = Callable[[Any], Sequence[str]]


class Teller:
    """A connection to the storage process; what cannot be sent now is kept, up to a limit."""

    def __init__(self, name: str) -> None:
        self._unsent = bytearray()
        self._socket: socket.socket | None = None
        with contextlib.suppress(OSError):
            self._socket = connect(name)
            self._socket.setblocking(False)
            self._socket_is = descriptors.of(self._socket.fileno())

    def tell(self, message: dict[str, Any]) -> None:
        if self._socket is None or len(self._unsent) > _MAX_UNSENT_NBYTES:
            return
        if not descriptors.is_still(self._socket.fileno(), self._socket_is):
            self._socket.detach()  # the script has closed it, and the number may be its own now
            self._socket = None
            return
        self._unsent += json.dumps(message).encode() + b"\n"
        self.flush()

    def flush(self) -> None:
        """Send what could not be sent before."""
        if self._socket is None or not self._unsent:
            return
        try:
            del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:  # the storage process is gone
            self._socket = None

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self._socket is not None and descriptors.is_still(
            self._socket.fileno(), self._socket_is
        ):
            self._socket.close()
        self._socket = None


def teller() -> Teller | None:
    """Return a connection of this process; None where the run has no mounts."""
    name = socket_name()
    return Teller(name) if name else None


def socket_name(environ: Mapping[str, str] = os.environ) -> str:
    """Return the name of the storage process's socket; empty where the run has no mounts."""
    return environ.get(config.STORAGE, "").partition("\n")[0]


def mount_paths(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the folders of the run's mounts, with a slash at the end."""
    return tuple(f"{path}/" for path in environ.get(config.STORAGE, "").split("\n")[1:])


# -- which files a sample has --------------------------------------------------------------------


def files_of(
    dataset: Any, mounts: tuple[str, ...], num: int | None = None, depth: int = 0
) -> FilesOf | None:
    """Return what finds the files of a sample by the dataset's own list; None if it has no such list.

    num: samples that it has; asked of the outermost dataset only, as samplers do: what lies within may
    open its file for it."""
    with contextlib.suppress(Exception):  # the script's own classes are asked
        kind = f"{type(dataset).__module__}.{type(dataset).__qualname__}"
        if kind == "torch.utils.data.dataset.Subset" and depth < _MAX_DEPTH:
            inner, indices = files_of(dataset.dataset, mounts, 0, depth + 1), dataset.indices
            return None if inner is None else lambda index: inner(indices[index])
        if kind == "torch.utils.data.dataset.ConcatDataset" and depth < _MAX_DEPTH:
            return _of_parts(dataset, mounts, depth)
        num = len(dataset) if num is None else num
        return _by_lists(dataset, mounts, num) or _of_inner(dataset, mounts, num, depth)
    return None


def _of_parts(dataset: Any, mounts: tuple[str, ...], depth: int) -> FilesOf | None:
    from bisect import bisect_right

    ends = list(dataset.cumulative_sizes)
    nums = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    pairs = zip(dataset.datasets, nums, strict=True)
    parts = [files_of(each, mounts, num, depth + 1) for each, num in pairs]

    def find(index: Any) -> Sequence[str]:
        at = bisect_right(ends, index)
        inner = parts[at]
        return () if inner is None else inner(index - (ends[at - 1] if at else 0))

    return find if any(parts) else None


def _of_inner(dataset: Any, mounts: tuple[str, ...], num: int, depth: int) -> FilesOf | None:
    """Of a wrapper of a dataset, which is taken to have as many samples."""
    for inner in vars(dataset).values():
        is_dataset = hasattr(type(inner), "__getitem__") and hasattr(type(inner), "__len__")
        is_plain = isinstance(inner, (str, bytes, list, tuple, dict))
        if is_dataset and not is_plain and depth < _MAX_DEPTH and hasattr(inner, "__dict__"):
            found = files_of(inner, mounts, num, depth + 1)
            if found is not None:
                return found
    return None


def _by_lists(dataset: Any, mounts: tuple[str, ...], num: int) -> FilesOf | None:
    """By lists of the dataset's that have a path for each sample, or tuples with paths. num: samples; 0:
    not known, any list will do."""
    found: list[Any] = []
    for value in vars(dataset).values():
        is_list = isinstance(value, (list, tuple)) or type(value).__module__ == "numpy"
        if not is_list or not len(value) or any(value is each for each in found):
            continue
        if len(value) == num or not num:
            looked_at = [_paths_in(value[at], mounts) for at in range(min(len(value), _LOOKED_AT))]
            if all(looked_at):
                found.append(value)
    if not found:
        return None
    return lambda index: _merged(_paths_in(each[index], mounts) for each in found)


def _merged(lists: Iterator[list[str]]) -> list[str]:
    return list(dict.fromkeys(path for paths in lists for path in paths))


def _paths_in(element: Any, mounts: tuple[str, ...]) -> list[str]:
    """Return the paths below a mount in an element of a list: itself, or of a tuple or dict."""
    if isinstance(element, dict):
        element = tuple(element.values())
    found = []
    for each in element if isinstance(element, (tuple, list)) else (element,):
        text = str(each) if isinstance(each, PurePath) else each
        if isinstance(text, str) and text.startswith(mounts):
            # Of twenty thousand paths a second few have anything to mend.
            found.append(os.path.normpath(text) if "//" in text or "/." in text else text)
    return found


def name_of(dataset: Any) -> str:
    """Name a dataset, so that what was learnt of its samples in one process is found by another."""
    with contextlib.suppress(Exception):
        own = vars(dataset)
        plain = {name: value for name, value in own.items() if isinstance(value, (str, int, float))}
        kind = f"{type(dataset).__module__}.{type(dataset).__qualname__}"
        inner = own.get("indices") if "dataset" in own else None
        rest = "" if inner is None else repr(list(inner[:8]))
        return f"{kind}:{len(dataset)}:{zlib.crc32(repr(sorted(plain.items())).encode() + rest.encode())}"
    return ""


# -- the trainer's sampler -----------------------------------------------------------------------


class SamplerAhead:
    """Iterates a sampler's index lists as they are, but draws them earlier, and tells their files.

    Only for samplers that may be asked ahead (scheduler/tasks/plan.py).
    """

    def __init__(self, iterator: Iterator[Any], told: Teller, dataset: Any) -> None:
        self._iterator, self._told = iterator, told
        self._files_of = files_of(dataset, mount_paths())
        self._name = name_of(dataset)
        self._drawn: deque[Any] = deque()
        self._num_ahead = 0  # samples
        self._untold: deque[Any] = deque()
        self._is_over = False
        self._by = f"{os.getpid()} {self._name}"
        told.tell({"begin": self._by})

    def __iter__(self) -> "SamplerAhead":
        return self

    def __next__(self) -> Any:
        self._draw()
        if not self._drawn:
            raise StopIteration
        indices = self._drawn.popleft()
        self._num_ahead -= _num_of(indices)
        return indices

    def _draw(self) -> None:
        while not self._is_over and self._num_ahead < AHEAD_SAMPLES:
            try:
                indices = next(self._iterator)
            except StopIteration:
                self._is_over = True
                break
            self._drawn.append(indices)
            self._num_ahead += _num_of(indices)
            self._untold += indices if isinstance(indices, list) else [indices]
        while len(self._untold) >= _AT_ONCE or (self._is_over and self._untold):
            num = min(_AT_ONCE, len(self._untold))
            self._tell([self._untold.popleft() for _ in range(num)])
        self._told.flush()

    def _tell(self, untold: list[Any]) -> None:
        with contextlib.suppress(Exception):  # indices of any kind
            if self._files_of is None:
                self._told.tell({"of": self._name, "samples": untold, "by": self._by})
            else:
                paths = [path for at in untold for path in self._files_of(at)]
                self._told.tell({"ahead": paths, "by": self._by})


def _num_of(indices: Any) -> int:
    return len(indices) if isinstance(indices, list) else 1


# -- a worker's batch ----------------------------------------------------------------------------


class _Noted(list[Any]):
    """A batch's indices, which notes which of them is being worked on."""

    def __init__(self, indices: list[Any], between: Callable[[], None]) -> None:
        """between: called after each sample."""
        super().__init__(indices)
        self._between = between
        self.at: Any = None

    def __iter__(self) -> Iterator[Any]:
        for self.at in super().__iter__():
            yield self.at
            self._between()


class BatchFiles:
    """Tells a worker's batches before they are made, and which files samples open."""

    def __init__(
        self,
        told: Teller,
        dataset: Any,
        is_batched: bool,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """is_batched: torch's fetcher goes through the indices; else the dataset gets the list itself; look:
        called between samples, tells of batches that have come meanwhile."""
        self._look, self._looked_s = look, now_s()
        self._told, self._name = told, name_of(dataset)
        self._mounts = mount_paths()
        self._files_of = files_of(dataset, self._mounts)
        self._may_note = is_batched and not hasattr(dataset, "__getitems__")
        self._may_learn = self._files_of is None and self._may_note
        self._noted: _Noted | None = None
        self._opened: list[tuple[Any, str]] = []
        if self._may_learn:
            sys.addaudithook(self._hear)

    def tell(self, indices: Any) -> None:
        """Tell which files a batch needs, which is about to be made."""
        if type(indices) is not list:
            return
        with contextlib.suppress(Exception):
            if self._files_of is not None:
                self._told.tell({"next": [path for at in indices for path in self._files_of(at)]})
            elif self._may_learn:
                self._told.tell({"of": self._name, "next_samples": indices})

    def begin(self, indices: Any) -> Any:
        """Begin to note what a batch opens. Returns the indices, or a list that is like them."""
        if type(indices) is list and self._may_note:
            self._noted = _Noted(indices, self._between)
            return self._noted
        return indices

    def _between(self) -> None:
        now = now_s()
        if now > self._looked_s + LOOKS_EACH_S:
            self._looked_s = now
            with contextlib.suppress(Exception):  # of another batch: it will meet that itself
                self._look()

    def end(self) -> None:
        """Tell what the batch has opened."""
        self._noted = None
        if self._opened:
            with contextlib.suppress(Exception):  # indices of any kind
                self._told.tell({"of": self._name, "opened": self._opened})
            self._opened = []

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        noted = self._noted  # another thread may end the batch
        if event == "open" and noted is not None:
            path = arguments[0]
            if isinstance(path, str) and path.startswith(self._mounts):
                self._opened.append((noted.at, path))
