"""Makes a `num_workers=0` loader's batches in another process, as the trainer would have.

The process shows no worker info and no seeds: `get_worker_info()` is None, and the generators
are those that the trainer names. A batch that is to be audited (`must_audit`) is made twice.

Promise: a batch is sent only if the script cannot tell that the trainer did not make it: it left no
trace, in this process or outside (fingerprint/), and shares no memory with anything. Else the task
is refused, with the reason, and the trainer makes the batch itself.
Owner: the process's main thread.
"""

from collections.abc import Iterator, Sequence
from types import EllipsisType, NotImplementedType
from typing import Any, NamedTuple, cast

import torch
from torch._utils import ExceptionWrapper

from stoker.clock import Deadline
from stoker.fast.place import FastFunctions
from stoker.fingerprint.fingerprint import Unwatchable, fingerprint
from stoker.fingerprint.outside import Outside
from stoker.fingerprint.written import WrittenPages, written_pages
from stoker.memory.stand_in import Memory
from stoker.wire.batch_codec import loads
from stoker.wire.channel import Frame
from stoker.wire.frame import Kind, pack
from stoker.wire.sections import Section, pack_section, unpack_sections, unpack_taken
from stoker.worker.early import Early
from stoker.worker.job import Job
from stoker.worker.loop import Worker
from stoker.worker.seeding import restore_generators, save_generators

# What a batch can tell its process by, or could be told from another process by.
BANNED = frozenset(
    {"getpid", "getppid", "gettid", "current_process", "parent_process", "active_children",
     "get_ident", "get_native_id", "current_thread", "main_thread"}
)  # fmt: skip
_IMMUTABLE = (
    str, bytes, int, float, complex, bool, type(None), type, range, slice,
    EllipsisType, NotImplementedType,
    torch.dtype, torch.device, torch.Size, torch.memory_format, torch.layout,
)  # fmt: skip


class Request(NamedTuple):
    """The decoded body of a task."""

    indices: Any
    generators: bytes | None  # to begin with; None: as the task before left them
    must_audit: bool


def watch_all(job: Job, deadline: Deadline, pages: WrittenPages | None) -> bytes:
    """Return the fingerprint of all that a batch may depend on. Raises Unwatchable."""
    return fingerprint(job.reachable(), deadline, BANNED, pages=pages)


class StandIn(Worker):
    """A worker that serves Requests."""

    def set_up(
        self,
        early: Early | None = None,
        memory: Memory | None = None,
        fast: Sequence[FastFunctions] = (),
    ) -> None:
        self._memory = memory
        self._outside = Outside()
        try:
            self._open()
            self._pages = written_pages()
            self._fingerprint = watch_all(self._job, Deadline(None), self._pages)
        except Unwatchable:
            self._fingerprint = b""

    def _begin(self, frame: Frame) -> None:
        self._take_heap(unpack_taken(unpack_sections(frame.extra)[Section.TAKEN]))

    def _serve(self, frame: Frame) -> None:
        header = frame.header
        request = Request(*cast(tuple[Any, ...], loads(frame.payload[: header.blob_nbytes])))
        if request.generators is not None:
            restore_generators(request.generators)
        before = save_generators()
        self._outside.begin()
        batch = self._fetch(request.indices)
        after = save_generators()
        why = self._why_not(batch)
        if not why and request.must_audit:
            restore_generators(before)
            self._outside.begin()
            again = self._fetch(request.indices)
            why = self._why_not(again) or _why_not_twice(batch, again)
            restore_generators(after)
        if why:
            words = pack_section(Section.WHY, why.encode())
            head = pack(Kind.NOT_INDEPENDENT, task_id=header.task_id, extra_nbytes=len(words))
            self._channel.send(head, words)
        else:
            told = after if after != before else None
            self._answer(header.task_id, 0, self._encoded((batch, told)), None, free=True)

    def _why_not(self, batch: Any) -> str:
        """Return why the script may not have this batch, in words; empty: it left no trace."""
        trace = self._outside.traces()
        if isinstance(batch, ExceptionWrapper):
            return f"it raises {batch.exc_type.__name__}"
        if trace:
            return trace
        try:
            has_moved = watch_all(self._job, Deadline(None), self._pages) != self._fingerprint
        except Unwatchable as reason:
            return f"it cannot be watched: {reason}"
        return "its state moves" if has_moved else ""


def _why_not_twice(batch: Any, again: Any) -> str:
    try:
        shares = set(_addresses(batch)) & set(_addresses(again))
    except Exception as error:  # of a stranger's object that is asked for its attributes
        return f"it cannot be looked into: {type(error).__name__}"
    return "it hands out its own memory" if shares else ""


def _addresses(value: Any) -> Iterator[int]:
    """Iterate over the addresses of a batch's mutable parts."""
    if isinstance(value, torch.Tensor):
        if value.layout is torch.strided and value.untyped_storage().nbytes():
            yield value.untyped_storage().data_ptr()
        yield id(value)
    elif isinstance(value, tuple):
        for part in value:
            yield from _addresses(part)
    elif not isinstance(value, _IMMUTABLE):
        yield id(value)
        yield from _inside(value)


def _inside(value: Any) -> Iterator[int]:
    if hasattr(value, "__array_interface__"):
        yield value.__array_interface__["data"][0]
    elif isinstance(value, dict):
        for part in value.values():
            yield from _addresses(part)
    elif isinstance(value, (list, set, frozenset)):
        for part in value:
            yield from _addresses(part)
    for part in getattr(value, "__dict__", {}).values():
        yield from _addresses(part)
