"""Translates frames from workers into the decider's events.

Owner: the thread that iterates.
"""

import math
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from stoker.fast import report as fast
from stoker.loaders.driver.helpers import Alone
from stoker.loaders.driver.workers import Workers
from stoker.local.sizing import machine_nbytes
from stoker.scheduler.events import (
    Arrived,
    Bounded,
    Ended,
    Event,
    FreeArrived,
    NotIndependent,
    PointTaken,
    ReplayDiverged,
    StateSaved,
    WorkerReady,
)
from stoker.scheduler.tasks.slot import Slot
from stoker.wire.arena import Lender
from stoker.wire.batch_codec import decode
from stoker.wire.channel import Frame
from stoker.wire.frame import INLINE, PLACE, Flag, Header, Kind
from stoker.wire.sections import (
    NO_DATA,
    SHARED,
    Section,
    unpack_offsets,
    unpack_sections,
    unpack_wire,
)
from stoker.wire.stream_copy import STREAM_NBYTES, WHY_NONE

Sections = dict[Section, memoryview]


class Failed(NamedTuple):
    """Replaces a batch whose worker raised: torch's ExceptionWrapper, and where the worker was."""

    wrapper: Any
    slot: Slot
    task_id: int
    body: bytes
    node: str = ""  # where the worker was, if not on this machine


class Told(NamedTuple):
    """The state that a worker sent with a batch: encoded; empty if not asked for, or none moved."""

    chain: int
    state: bytes


@dataclass(slots=True)
class DriverStats:
    wire_nbytes: int = 0  # through sockets
    raw_nbytes: int = 0  # of tensors and arrays delivered
    num_started: int = 0
    num_away: int = 0  # batches that other machines made
    num_copied: int = 0  # batches copied out because the script holds too much
    why_slow_copies: str = ""  # where a batch came for which stream_copy would have paid


class Inbox:
    """Decodes frames. held_limit_nbytes: see Driver; keeps_states: the job is stateful."""

    def __init__(
        self, workers: Workers, helpers: Alone, held_limit_nbytes: int, keeps_states: bool
    ) -> None:
        self._workers, self._helpers = workers, helpers
        self.stats = DriverStats()
        self.prepare: Callable[[Any], Any] | None = None  # called on each batch as it arrives
        self.bodies: dict[int, bytes] = {}  # index lists of the tasks that are owed
        # Of a stateful job alone: what came with batches that have not been taken, with ends of
        # iterables, and what each chain's latest worker began its latest epoch with.
        self.states: dict[int, Told] = {}
        self.ends: list[tuple[int, Told]] = []
        self.begun: dict[int, tuple[int, bytes]] = {}
        self.slow: dict[int, str] = {}  # why a batch took long, of those not yet taken
        self.has_ended = False  # a chain's iterable, since wait_next told last
        self.is_awaiting = False  # what is taken in has come just now: the loop was waiting
        self._keeps_states = keeps_states
        self._held_limit_nbytes = held_limit_nbytes
        self._held_at_most_nbytes: float = math.inf  # as counted last, and all that came since
        self._room_nbytes = held_limit_nbytes if held_limit_nbytes >= 0 else machine_nbytes() // 2
        self._max_held = sys.maxsize  # batches that there is room for

    def take_in(self, slot: Slot, frame: Frame, lender: Lender | None) -> list[Event]:
        """Return what a frame says. lender: of the arena that the slot\'s worker writes to."""
        header = frame.header
        sections = unpack_sections(frame.extra) if header.extra_nbytes else {}
        match header.kind:
            case Kind.BATCH | Kind.FAILURE:
                return self._batch(slot, frame, lender, sections)
            case Kind.ENDED:
                return self._ended(slot, header.task_id, sections)
            case Kind.STATE:
                assert slot.chain is not None
                self.begun[slot.chain] = header.task_id, bytes(sections[Section.STATE])
            case Kind.NOT_INDEPENDENT:
                why = bytes(sections[Section.WHY])
                if why != SHARED:
                    return [NotIndependent(slot, header.task_id, why.decode())]
                self._helpers.leave()  # which ends this worker
            case Kind.DIVERGED:
                return [ReplayDiverged(slot)]
            case Kind.READY:
                return [WorkerReady(slot, *pickle.loads(sections[Section.STARTED]))]
        return []

    def _batch(
        self, slot: Slot, frame: Frame, lender: Lender | None, sections: Sections
    ) -> list[Event]:
        header = frame.header
        if (wire := sections.get(Section.WIRE)) is not None:
            self.stats.wire_nbytes += unpack_wire(wire)
            self.stats.num_away += 1
        else:
            self.stats.wire_nbytes += len(frame.payload)
        self._hear_of_fast(sections)
        if (why := sections.get(Section.SLOW)) is not None:
            self.slow[header.task_id] = bytes(why).decode(errors="replace")
        self._helpers.measure(slot, header.task_id, header.work_us / 1e6, self.is_awaiting)
        if lender is not None:
            lender.given = unpack_offsets(sections.get(Section.GIVEN, NO_DATA))
        nbytes, batch = self._decode(frame, lender)
        body = self.bodies.pop(header.task_id, b"")
        if header.kind == Kind.FAILURE:
            batch = Failed(batch, slot, header.task_id, body, self._workers.node_of(slot))
        elif self.prepare is not None:
            batch = self.prepare(batch)
        has_come = FreeArrived if header.flags & Flag.FREE else Arrived
        events: list[Event] = [has_come(slot, header.task_id, batch)]
        if self._keeps_states:
            told = bytes(sections.get(Section.STATE, b""))
            self.states[header.task_id] = Told(header.chain, told)
        if (point := sections.get(Section.POINT)) is not None:
            events.append(PointTaken(header.chain, pickle.loads(point)))
        if (saved := sections.get(Section.SAVED)) is not None:
            events.append(StateSaved(header.chain, pickle.loads(saved)))
        if nbytes * self._max_held > self._room_nbytes:
            self._max_held = self._room_nbytes // nbytes
            events.append(Bounded(max_held=self._max_held))
        return events

    def _hear_of_fast(self, sections: Sections) -> None:
        if (news := sections.get(Section.FAST)) is not None:
            fast.report.take_in(bytes(news))

    def _ended(self, slot: Slot, task_id: int, sections: Sections) -> list[Event]:
        self.bodies.pop(task_id, None)
        self._hear_of_fast(sections)
        self.has_ended = True
        if self._keeps_states:
            assert slot.chain is not None
            self.ends.append((task_id, Told(slot.chain, bytes(sections.get(Section.STATE, b"")))))
        return [Ended(slot, task_id)]

    def _decode(self, frame: Frame, lender: Lender | None) -> tuple[int, Any]:
        """Decode a batch. Returns the bytes of its tensors and arrays, and the batch."""
        header, payload = frame.header, frame.payload
        table = payload[: header.table_nbytes()]
        blob = payload[len(table) :]
        copies = self._holds_too_much()
        if header.blob_offset != INLINE:
            assert lender is not None
            blob = lender.lend(header.blob_offset, header.blob_nbytes)
        nbytes = self._count(header, table)
        self.stats.num_copied += copies and self._held_limit_nbytes >= 0
        batch = decode(table, header.num_storages, header.stream_nbytes, blob, lender, copies)
        return nbytes, batch

    def _count(self, header: Header, table: memoryview) -> int:
        nbytes: int = sum(nbytes for _, nbytes, _ in PLACE.iter_unpack(table))
        self.stats.raw_nbytes += nbytes
        if nbytes >= STREAM_NBYTES:
            self.stats.why_slow_copies = WHY_NONE
        self._held_at_most_nbytes += nbytes + header.blob_nbytes
        return nbytes

    def _holds_too_much(self) -> bool:
        if self._held_at_most_nbytes > self._held_limit_nbytes:
            lenders = self._workers.lenders
            self._held_at_most_nbytes = sum(lender.held_nbytes() for lender in lenders)
        return self._held_at_most_nbytes > self._held_limit_nbytes
