"""Carries out the decider's actions (ask, start, kill, ...) on sockets and worker processes.

Owner: the thread that iterates.
"""

import pickle
from collections.abc import Callable
from typing import Any

from stoker.loaders.driver.helpers import Alone
from stoker.loaders.driver.inbox import Inbox
from stoker.loaders.driver.lines import Line, Lines
from stoker.loaders.driver.workers import Workers
from stoker.scheduler.events import (
    Action,
    Ask,
    Finish,
    GiveUp,
    Kill,
    Reload,
    Rerun,
    Resume,
    Start,
)
from stoker.scheduler.tasks.slot import Slot
from stoker.wire.arena import AT_ONCE_NBYTES
from stoker.wire.frame import Flag, Kind, pack
from stoker.wire.sections import Section, pack_offsets, pack_section, pack_taken


class Actions:
    """Executes actions. give_up: called with each task that no worker can do."""

    def __init__(
        self,
        lines: Lines,
        workers: Workers,
        helpers: Alone,
        inbox: Inbox,
        is_iterable: bool,
        give_up: Callable[[GiveUp], None],
    ) -> None:
        self._lines, self._workers, self._helpers, self._inbox = lines, workers, helpers, inbox
        self._is_iterable = is_iterable  # its index lists say nothing
        self._how: dict[type[Action], Callable[[Any], None]] = {
            Ask: self._ask,
            Start: self._start,
            Resume: self._resume,
            Rerun: self._rerun,
            Reload: self._reload,
            Finish: lambda action: self.hang_up(action.slot),
            Kill: lambda action: self._kill(action.slot),
            GiveUp: give_up,
        }

    def do(self, actions: list[Action]) -> None:
        for action in actions:
            self._how[type(action)](action)

    def _ask(self, ask: Ask) -> None:
        line = self._lines.get(ask.slot)
        if line is None:
            return  # it is being lost: the loss asks again
        task, lender = ask.task, line.lender
        returned = lender.take_returned() if lender is not None else []
        extra = pack_offsets(Section.RETURNED, returned)
        if not ask.quiet:
            self._helpers.asked(ask.slot, task.id)
            if not self._is_iterable:
                self._inbox.bodies[task.id] = task.body
        head = pack(
            Kind.TASK,
            flags=ask.quiet * Flag.QUIET
            | ask.free * Flag.FREE
            | ask.watch * Flag.WATCH
            | task.wants_state * Flag.STATE,
            task_id=task.id,
            chain=task.chain,
            stream_nbytes=len(task.body),
            blob_nbytes=len(task.body),
            extra_nbytes=len(extra),
        )
        self._lines.send(line, head, task.body, extra)

    def _start(self, start: Start) -> None:
        self._inbox.stats.num_started += 1
        sock = self._workers.start(start.slot, start.after_s, start.away)
        lender = self._workers.lender_of(start.slot)
        line = self._lines.add(start.slot, sock, lender, start.slot in self._workers.away)
        if lender is not None:
            lender.take_returned()  # the new worker has never heard of them
        begin = pickle.dumps((start.point, start.must_report))
        self._send(
            line,
            Kind.BEGIN,
            pack_taken(self._workers.taken(start.slot)) + pack_section(Section.START, begin),
        )

    def _resume(self, resume: Resume) -> None:
        self._say(resume.slot, Kind.RESUME, pack_section(Section.SEED, resume.seed))

    def _rerun(self, rerun: Rerun) -> None:
        flags = rerun.wants_state * Flag.STATE
        indices = pack_section(Section.INDICES, rerun.body)
        self._say(rerun.slot, Kind.RERUN, indices, rerun.num_batches, flags)

    def _reload(self, reload: Reload) -> None:
        saved = pack_section(Section.SAVED, pickle.dumps(reload.point))
        indices = pack_section(Section.INDICES, reload.body)
        self._say(reload.slot, Kind.RELOAD, saved + indices)

    def _kill(self, slot: Slot) -> None:
        """End a worker whose state is of no more use."""
        if self._lines.get(slot) is not None:
            self.hang_up(slot)
            self._workers.kill(slot)

    def hang_up(self, slot: Slot) -> None:
        """Close the socket to the slot's worker: nothing more is read from it."""
        self._lines.hang_up(slot)
        self._workers.hung_up(slot)
        self._helpers.gone(slot)

    def tell_returned(self) -> None:
        """Tell workers here which extents are free again. Workers on other machines hear it with
        their next task: there fresh memory is touched only once."""
        for line in self._lines.all:
            if line.lender is None or line.is_away:
                continue
            if returned := line.lender.take_returned(AT_ONCE_NBYTES):
                self._send(line, Kind.RETURNED, pack_offsets(Section.RETURNED, returned))

    def _say(self, slot: Slot, kind: Kind, extra: bytes, task_id: int = -1, flags: int = 0) -> None:
        line = self._lines.get(slot)
        if line is not None:  # else it is being lost: the loss says it again
            self._send(line, kind, extra, task_id, flags)

    def _send(
        self, line: Line, kind: Kind, extra: bytes, task_id: int = -1, flags: int = 0
    ) -> None:
        head = pack(kind, flags=flags, task_id=task_id, extra_nbytes=len(extra))
        self._lines.send(line, head, extra)
