"""A host without torch: what it is asked for is there already, and only has to travel.

    emulated_host.py ANSWER          a Pass and who it is come on stdin, as to remote/host/start.py

ANSWER is a file that `emulated.py` made: one batch as a worker would have encoded it, and how long
a task takes, which is slept. Whatever the job is, it is ready. Real messages, real handshake.
"""

import json
import os
import pickle
import select
import sys
import time
from collections import deque
from typing import Any

from stoker.remote.net.auth import Pass, dial
from stoker.remote.net.control import Exited, encode
from stoker.remote.net.link import BEAT_S, Link, Message, Word
from stoker.remote.net.relay import _NUM_PARTS, _PART, RAW
from stoker.wire.channel import ConnectionLost
from stoker.wire.frame import HEADER, Kind, pack, unpack
from stoker.wire.marks import NOTHING
from stoker.wire.sections import Section, pack_section


class Emulated:
    def __init__(self, link: Link, answer: dict[str, Any]) -> None:
        self.link, self.task_s = link, answer["task_s"]
        self.body = [memoryview(bytearray(part)) for part in answer["parts"]]
        self.places, self.stream = answer["places"], answer["stream"]
        parts = [_PART.pack(RAW, 0, part.nbytes, part.nbytes) for part in self.body]
        self.parts = b"".join((_NUM_PARTS.pack(len(parts)), *parts))
        self.tasks: dict[int, deque[tuple[int, int, int]]] = {}  # by lane: id, chain, flags
        self.due_s: dict[int, float] = {}

    def obey(self, message: Message) -> None:
        lane = message.lane
        match message.kind:
            case Word.JOB:
                self.link.send(Word.READY, lane)
            case Word.START:
                self.tasks[lane] = deque()
                self.link.send(Word.STARTED, lane, str(os.getpid()).encode())
            case Word.HANG_UP:
                self.tasks.pop(lane, None)
                self.due_s.pop(lane, None)
                self.link.send(Word.ENDED, lane, encode(Exited(os.getpid(), 0, NOTHING)))
            case Word.FRAME if lane in self.tasks:
                header = unpack(message.head, 0)
                if header.kind == Kind.BEGIN:
                    started = pack_section(Section.STARTED, pickle.dumps((b"", False)))
                    head = pack(Kind.READY, extra_nbytes=len(started)) + started
                    self.link.send(Word.FRAME, lane, _NUM_PARTS.pack(0) + head)
                elif header.kind == Kind.TASK:
                    self.tasks[lane].append((header.task_id, header.chain, header.flags & 2))
                    self.due_s.setdefault(lane, time.monotonic() + self.task_s)

    def answer(self, lane: int) -> None:
        task_id, chain, flags = self.tasks[lane].popleft()
        head = pack(
            Kind.BATCH, flags=flags, task_id=task_id, chain=chain, places=self.places,
            stream_nbytes=len(self.stream), blob_nbytes=len(self.stream),
        )  # fmt: skip
        assert len(head) >= HEADER.size
        self.link.send(Word.FRAME, lane, self.parts + head + self.stream, self.body)
        del self.due_s[lane]
        if self.tasks[lane]:
            self.due_s[lane] = time.monotonic() + self.task_s

    def serve(self) -> None:
        poll, spoke_s = select.poll(), time.monotonic()
        poll.register(0, select.POLLIN)
        while True:
            now_s = time.monotonic()
            for lane in [lane for lane, due_s in self.due_s.items() if due_s <= now_s]:
                self.answer(lane)
            if now_s - spoke_s > BEAT_S:
                spoke_s = now_s
                self.link.send(Word.BEAT)
            wait_s = min([BEAT_S, *(due_s - time.monotonic() for due_s in self.due_s.values())])
            unsent = select.POLLOUT if self.link.has_unsent else 0
            poll.register(self.link, select.POLLIN | unsent)
            for fd, _ in poll.poll(max(0.0, wait_s) * 1000):
                if fd == 0:
                    return  # whoever started this is gone
            self.link.flush()
            while (message := self.link.receive_nowait()) is not None:
                self.obey(message)


def main() -> None:
    said = json.loads(sys.stdin.buffer.readline())
    way = Pass(said["address"], said["port"], bytes.fromhex(said["token"]), said["certificate"])
    with open(sys.argv[1], "rb") as file:  # noqa: PTH123
        answer = pickle.load(file)
    link = Link(dial(way, {"name": said["name"], "node": said["node"]}, 10.0))
    try:
        Emulated(link, answer).serve()
    except ConnectionLost:
        return


if __name__ == "__main__":
    main()
