"""Runs a worker's loop: fetches, collates and sends batches, in the order of the chain.

Promise: a task of its own chain runs as torch's worker would run it; a free-standing task
(Flag.FREE) leaves no trace, or is refused and the trainer told why.
Owner: the process's main thread owns everything here.
"""

import contextlib
import itertools
import os
import pickle
import select
import sys
import types
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import _DatasetKind, _utils
from torch.utils.data.graph_settings import apply_random_seed

from stoker import trusted
from stoker.clock import Deadline, now_s, thread_cpu_s
from stoker.fast.place import FastFunctions
from stoker.fast.report import pack_news
from stoker.fingerprint.fingerprint import Unwatchable
from stoker.memory.stand_in import Memory
from stoker.scheduler.tasks.point import Point, SavedPoint
from stoker.shared_tensors import SharedTensors
from stoker.stalls.slow import SlowBatches, look
from stoker.storage.asking.upcoming import BatchFiles, teller
from stoker.wire.arena import Heap, Room
from stoker.wire.batch_codec import Encoded, encode, loads
from stoker.wire.channel import Channel, ConnectionLost, Frame
from stoker.wire.frame import Flag, Header, Kind, pack
from stoker.wire.marks import NOTHING
from stoker.wire.sections import (
    NO_DATA,
    SHARED,
    Section,
    Taken,
    pack_offsets,
    pack_section,
    pack_shapes,
    unpack_offsets,
    unpack_sections,
    unpack_taken,
)
from stoker.worker.early import Early
from stoker.worker.job import OWN_NBYTES, Job
from stoker.worker.saved import Saver, has_state, load_dataset, proof_of
from stoker.worker.seeding import restore_generators, save_generators, seed_generators

# A chain is watched after this much work, and then so that watching costs at most this share.
FIRST_WATCH_S = 0.25
WATCH_FRAC = 0.01
WATCH_EVERY_S = 0.5
STAND_INS = tuple(
    str(Path(__file__).parents[1] / name)
    for name in ("memory", "images", "fast", "redirect.py", "worker/early.py")
)
ENDED = object()  # in place of a batch: the iterable has no more
# A worker whose tasks are short looks for the next one this long before it sleeps: to wake a
# process on an idle core costs the trainer up to 70 us. Measured: benchmarks/handover_small.py
SPIN_S = 100e-6
SHORT_TASK_S = 1e-3


class Worker:
    """Runs tasks for one slot. chain: its own; None for a slot that takes free-standing tasks."""

    def __init__(self, job: Job, chain: int | None, channel: Channel, room: Room | None) -> None:
        self._job = job
        self._chain = chain
        self._channel = channel
        self._room = room
        self._copies: SharedTensors | None = None  # on another machine than the loop
        self._inbox: deque[Frame] = deque()  # tasks that came while another was at work
        self._told_task = -1  # the last one of those whose files were told
        self.heap: Heap | None = None
        self.mark: Callable[[int], None] = lambda task_id: None  # what is being made, see Marks
        self._fetcher: Any = None
        self._early: Early | None = None
        self._memory: Memory | None = None
        self._fast: Sequence[FastFunctions] = ()
        self._batch_files: BatchFiles | None = None  # where the run has mounts
        self._init_failure: ExceptionWrapper | None = None
        self._saver: Saver | None = None  # of an iterable that can save its own state
        self._is_over = False  # the iterable ended; until it is resumed tasks are skipped
        self._skip_until = -1  # tasks up to here need not run again: a Point covers them
        self._seeded = b""
        self._num_tasks = 0
        self._task_s = 1.0  # what the last task took
        self._made_s = 0.0  # the last batch, of whatever kind of task
        self._slow: SlowBatches | None = None
        self._why_slow = ""
        self._work_s = 0.0
        self._next_watch_s = FIRST_WATCH_S
        self._fingerprint = b""

    # -- life ------------------------------------------------------------------------------

    def set_up(
        self,
        early: Early | None = None,
        memory: Memory | None = None,
        fast: Sequence[FastFunctions] = (),
    ) -> None:
        """Seed, set the worker's info and run worker_init_fn, as torch does before its loop.

        early: moves samples into their batch as they come; None: they are only stacked;
        memory: serves samples that were made before; fast: makes libraries faster.
        """
        self._early, self._memory, self._fast = early, memory, fast
        self._copies = self._job.shared if self._job.tells_shapes else None
        if self._job.names_slow:
            self._slow = SlowBatches(look, at_once=self._job.has_slow)
        if self._job.shared_seed is not None:
            self._seed_pipe(self._job.shared_seed)
        self.show_as(self._chain or 0)
        self._seeded = save_generators()
        job = self._job
        if not job.is_iterable and (told := teller()) is not None:
            self._batch_files = BatchFiles(
                told, job.dataset, job.auto_collation, self._tell_waiting
            )
        try:
            if job.worker_init_fn is not None and self._chain is not None:
                job.worker_init_fn(self._chain)
                trusted.look_again()
            self._open()
        except Exception:
            self._init_failure = self._caught()

    def _open(self) -> None:
        """Make torch's fetcher, which for an iterable calls iter(dataset)."""
        job = self._job
        for functions in self._fast:
            functions.look()
        if self._memory is not None and job.is_iterable:
            self._memory.begin_iterable()
        fetcher = _DatasetKind.create_fetcher(
            job.dataset_kind, job.dataset, job.auto_collation, job.collate_fn, job.drop_last
        )
        dataset = job.dataset
        if self._memory is not None and job.dataset_kind == _DatasetKind.Map:
            dataset = fetcher.dataset = self._memory.around(dataset, job.collate_fn)
        if self._early is not None:
            fetcher = self._early.around(fetcher, job, dataset, self._memory)
        self._fetcher = fetcher
        if job.is_iterable and job.may_save:
            can_save = has_state(job.dataset) or has_state(fetcher.dataset_iter)
            self._saver = Saver() if can_save else None

    def _resume(self, seed: int | None) -> None:
        """Begin the next epoch of an iterable, as torch's _ResumeIteration does."""
        self._is_over, self._init_failure = False, None
        try:
            if seed is not None:
                self._seed_pipe(seed)
            self._open()
        except Exception:
            self._init_failure = self._caught()

    def _seed_pipe(self, seed: int) -> None:
        generator = torch.Generator(device="cpu")
        generator.manual_seed(seed)
        apply_random_seed(self._job.dataset, generator)

    def show_as(self, chain: int) -> None:
        """Become worker `chain` to whoever asks: seed the generators, set get_worker_info()."""
        seed = seed_generators(self._job.base_seed, chain)
        info = _utils.worker.WorkerInfo(
            id=chain, num_workers=self._job.num_chains, seed=seed, dataset=self._job.dataset
        )
        _utils.worker._worker_info = info

    def run(self) -> None:
        """Serve tasks until the trainer closes its side."""
        try:
            while True:
                frame = self._wait_frame()
                kind = frame.header.kind
                if kind == Kind.BEGIN:
                    self._begin(frame)
                elif kind == Kind.RESUME:
                    seed = unpack_sections(frame.extra)[Section.SEED]
                    self._resume(cast(int | None, loads(seed)))
                elif kind == Kind.RERUN:
                    self._rerun(frame.header, unpack_sections(frame.extra)[Section.INDICES])
                elif kind == Kind.RELOAD:
                    if not self._take_up(unpack_sections(frame.extra)):
                        self._channel.send(pack(Kind.DIVERGED))
                        return  # to be another's now, from the start
                elif not self._is_over:
                    is_new = not frame.header.flags & Flag.QUIET
                    self.mark(frame.header.task_id if is_new else NOTHING)
                    self._serve(frame)
                    self.mark(NOTHING)
        except ConnectionLost:
            return

    def _wait_frame(self) -> Frame:
        frame = self._inbox.popleft() if self._inbox else self._wait_received()
        return self._first_free(frame) if frame.header.flags & Flag.FREE else frame

    def _first_free(self, frame: Frame) -> Frame:
        """Return the free-standing task that has come whose batch leaves first: if another worker
        died over it, the training loop waits for it, and not for what was asked for before."""
        self._inbox.appendleft(Frame(frame.header, memoryview(bytes(frame.payload))))
        self._hear_returned()
        free = list(itertools.takewhile(lambda f: f.header.flags & Flag.FREE, self._inbox))
        first = min(range(len(free)), key=lambda k: free[k].header.task_id)
        del self._inbox[first]
        return free[first]

    def _wait_received(self) -> Frame:
        poll = None
        spin_end_s = now_s() + SPIN_S if self._task_s < SHORT_TASK_S else 0.0
        while True:
            if self._channel.has_unsent:
                self._channel.flush()
            frame = self._receive()
            if frame is not None:
                return frame
            if now_s() < spin_end_s:
                os.sched_yield()
                continue
            poll = poll or select.poll()
            writable = select.POLLOUT if self._channel.has_unsent else 0
            poll.register(self._channel, select.POLLIN | writable)
            poll.poll()

    def _receive(self) -> Frame | None:
        """Return the next frame that is work, if one has come; free what came back with it."""
        while (frame := self._channel.receive_nowait()) is not None:
            kind = frame.header.kind
            if self.heap is not None and frame.header.extra_nbytes:
                returned = unpack_sections(frame.extra).get(Section.RETURNED, NO_DATA)
                for offset in unpack_offsets(returned):
                    self.heap.drop(offset)
            if kind != Kind.RETURNED:
                return frame
        return None

    def _hear_returned(self) -> None:
        """Read ahead, in the middle of a task, to learn what memory has come back."""
        try:
            while (frame := self._receive()) is not None:
                self._inbox.append(Frame(frame.header, memoryview(bytes(frame.payload))))
        except ConnectionLost:
            return  # `_wait_frame` will see it too

    def _begin(self, frame: Frame) -> None:
        sections = unpack_sections(frame.extra)
        point, must_report = pickle.loads(sections[Section.START])
        self._take_heap(unpack_taken(sections[Section.TAKEN]))
        state = b""
        if point is not None or must_report:
            state = self._watch(Deadline(None)) or b""
        if point is not None and state[:OWN_NBYTES] == point.fingerprint[:OWN_NBYTES]:
            restore_generators(point.generators)
            self._skip_until = point.task_id
        self._fingerprint = state
        started = pickle.dumps((state, self._skip_until >= 0))
        extra = pack_section(Section.STARTED, started)
        self._channel.send(pack(Kind.READY, extra_nbytes=len(extra)), extra)

    def _take_heap(self, taken: list[Taken]) -> None:
        if self._room is not None:
            self.heap = Heap(self._room, taken, self._hear_returned)

    # -- tasks -----------------------------------------------------------------------------

    def _serve(self, frame: Frame) -> None:
        header = frame.header
        if header.task_id <= self._skip_until:
            return
        indices = loads(frame.payload[: header.blob_nbytes])
        if self._batch_files is not None:
            if header.task_id > self._told_task:
                self._told_task = header.task_id
                self._batch_files.tell(indices)
            self._tell_waiting()
        if header.flags & Flag.FREE:
            self._serve_free(header.task_id, header.chain, indices)
            return
        started_s = now_s()
        batch = self._fetch(indices, bool(header.flags & Flag.STATE))
        if self._copies is not None and not self._copies.is_as_it_was:
            self._refuse(header.task_id, header.chain, SHARED)  # it is made where the loop sees it
            return
        if batch is ENDED:
            extra = self._extra(None)
            head = pack(Kind.ENDED, task_id=header.task_id, extra_nbytes=len(extra))
            self._channel.send(head, extra)
            return
        must_watch = bool(header.flags & Flag.WATCH)
        self._made_s = task_s = now_s() - started_s
        self._note_slow(indices)
        point: Point | SavedPoint | None = self._after_task(header.task_id, task_s, must_watch)
        if self._saver is not None:
            point = self._saver.heard(self._fetcher, self._job.dataset, batch, task_s)
        if not header.flags & Flag.QUIET:
            answer = self._encoded(batch)
            del batch  # of what nothing else holds the memory is given away
            self._answer(header.task_id, header.chain, answer, point)

    def _tell_waiting(self) -> None:
        """Tell which files batches need that wait behind the one that is made."""
        assert self._batch_files is not None
        self._hear_returned()
        for frame in self._inbox:
            if frame.header.kind == Kind.TASK and frame.header.task_id > self._told_task:
                self._told_task = frame.header.task_id
                self._batch_files.tell(loads(frame.payload[: frame.header.blob_nbytes]))

    def _fetch(self, indices: object, wants_state: bool = False) -> Any:
        """Return a batch, ENDED, or what was caught. wants_state: only a stateful job has one."""
        if self._init_failure is not None:
            return self._init_failure
        for functions in self._fast:
            functions.look()
        if self._memory is not None:
            self._memory.look()
        if self._slow is not None:
            self._slow.begin()
        if self._batch_files is not None:
            indices = self._batch_files.begin(indices)
        try:
            return self._fetcher.fetch(indices)
        except Exception as error:
            if isinstance(error, StopIteration) and self._job.is_iterable:
                self._is_over = True
                return ENDED
            # Not kept as an exception: see NOTE [ Python Traceback Reference Cycle Problem ]
            # in torch/_utils.py.
            return self._caught()
        finally:
            if self._batch_files is not None:
                self._batch_files.end()

    def _note_slow(self, indices: object) -> None:
        """Note why the batch that was just made took long, if it did."""
        self._why_slow = ""
        if self._slow is not None:
            with contextlib.suppress(Exception):  # ours, which no batch is to be lost for
                self._why_slow = self._slow.took(self._made_s, indices)

    def _rerun(self, header: Header, body: memoryview) -> None:
        """Replay what a dead worker fetched, so that an iterable is where that worker had it."""
        indices = loads(body)
        for _ in range(header.task_id):
            self._fetch(indices, bool(header.flags & Flag.STATE))

    def _take_up(self, sections: dict[Section, memoryview]) -> bool:
        """Go on from an iterable's own state. Returns whether the next batches are the same."""
        point: SavedPoint = pickle.loads(sections[Section.SAVED])
        try:
            iterators_state = load_dataset(point, self._job.dataset)
            self._open()
            if iterators_state is not None:
                self._fetcher.dataset_iter.load_state_dict(iterators_state)
            restore_generators(point.generators)
            indices = loads(sections[Section.INDICES])
            return all(proof_of(self._fetch(indices)) == proof for proof in point.proofs)
        except Exception:  # whatever the author's code raises: the next worker does without it
            return False

    def _caught(self) -> ExceptionWrapper:
        kind, error, trace = sys.exc_info()
        where = f"in DataLoader worker process {self._shown_chain()}"
        return ExceptionWrapper((kind, error, _without_ours(trace)), where)

    def _shown_chain(self) -> int:
        info = _utils.worker._worker_info
        return 0 if info is None else int(info.id)

    def _encoded(self, batch: Any) -> tuple[Kind, Encoded]:
        try:
            encoded = encode(batch, self.heap)
        except Exception:  # torch would print this and wait for ever
            batch = self._caught()
            encoded = encode(batch, self.heap)
        return Kind.FAILURE if isinstance(batch, ExceptionWrapper) else Kind.BATCH, encoded

    def _answer(
        self,
        task_id: int,
        chain: int,
        answer: tuple[Kind, Encoded],
        point: Point | SavedPoint | None,
        free: bool = False,
    ) -> None:
        kind, encoded = answer
        flags, extra = Flag.FREE if free else 0, self._extra(point)
        if self._job.tells_shapes:
            extra += pack_shapes(encoded.shapes())
        encoded.shown.clear()
        if self.heap is not None:
            extra += pack_offsets(Section.GIVEN, self.heap.give_away(encoded.in_arena))
        self._send(kind, flags, task_id, chain, encoded, extra)

    def _extra(self, point: Point | SavedPoint | None) -> bytes:
        """Return the sections that go along with an answer."""
        extra = self._news()
        if point is None:
            return extra
        name = Section.SAVED if isinstance(point, SavedPoint) else Section.POINT
        return extra + pack_section(name, pickle.dumps(point))

    def _news(self) -> bytes:
        """Return what is new of faster functions, and why the batch took long."""
        news = [place for functions in self._fast for place in functions.news()]
        extra = pack_section(Section.FAST, pack_news(news)) if news else b""
        if self._why_slow:
            extra += pack_section(Section.SLOW, self._why_slow.encode(errors="replace"))
        return extra

    def _send(
        self, kind: Kind, flags: int, task_id: int, chain: int, encoded: Encoded, extra: bytes
    ) -> None:
        head = pack(
            kind,
            flags=flags,
            task_id=task_id,
            chain=chain,
            places=(encoded.table, encoded.num_storages, encoded.num_buffers),
            stream_nbytes=encoded.stream_nbytes,
            blob_nbytes=encoded.blob_nbytes,
            blob_offset=encoded.blob_offset,
            extra_nbytes=len(extra),
            work_s=self._made_s,
        )
        self._channel.send(head, *encoded.inline_parts(), extra)

    # -- the ladder: what a task has and has not changed -------------------------------------

    def _after_task(self, task_id: int, task_s: float, must_watch: bool) -> Point | None:
        """Return a Point, now and then or if it was asked for; None otherwise."""
        self._task_s = task_s
        if self._job.is_iterable:
            return None  # where it is lies in its iterator, which nobody can look into
        self._num_tasks += 1
        self._work_s += task_s
        if self._work_s < self._next_watch_s and not must_watch:
            return None
        # In CPU time: on a crowded machine a look would else seem dearer than it is.
        started_s = thread_cpu_s()
        allowed_s = None if must_watch else max(WATCH_FRAC * self._work_s, 0.005)
        state = self._watch(Deadline(allowed_s, thread_cpu_s))
        watch_s = thread_cpu_s() - started_s
        if state is None:  # too large for now, or not watchable at all
            self._next_watch_s = 2 * self._work_s
            return None
        self._next_watch_s = self._work_s + max(watch_s / WATCH_FRAC, WATCH_EVERY_S)
        self._fingerprint = state
        generators = save_generators()
        drew = generators != self._seeded
        return Point(task_id, generators, state, drew, self._work_s / self._num_tasks, watch_s)

    def _watch(self, deadline: Deadline) -> bytes | None:
        try:
            return self._job.fingerprint(deadline)
        except Unwatchable:
            return None

    def _serve_free(self, task_id: int, chain: int, indices: object) -> None:
        """Run a free-standing task, then check that it drew nothing random and changed nothing."""
        mine = save_generators()
        self.show_as(chain)
        seeded = save_generators()
        started_s = now_s()
        batch = self._fetch(indices)
        self._made_s = now_s() - started_s
        self._note_slow(indices)
        drew = save_generators() != seeded
        if self._chain is not None:
            self.show_as(self._chain)
        restore_generators(mine)
        moved = self._watch(Deadline(None)) != self._fingerprint
        if drew or moved:
            self._refuse(task_id, chain, b"moved" if moved else b"drew")
        else:
            answer = self._encoded(batch)
            del batch
            self._answer(task_id, chain, answer, None, free=True)

    def _refuse(self, task_id: int, chain: int, what: bytes) -> None:
        """Say what the task did that makes its batch worthless."""
        why = pack_section(Section.WHY, what)
        head = pack(Kind.NOT_INDEPENDENT, task_id=task_id, chain=chain, extra_nbytes=len(why))
        self._channel.send(head, why)


def _without_ours(trace: types.TracebackType | None) -> types.TracebackType | None:
    """Return a traceback without what stands in for a dataset, between torch's code and its own."""
    kept = []
    while trace is not None:  # in a loop: one of a RecursionError is as long as the stack may be
        if not trace.tb_frame.f_code.co_filename.startswith(STAND_INS):
            kept.append(trace)
        trace = trace.tb_next
    rest = None
    for each in reversed(kept):
        rest = types.TracebackType(rest, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return rest
