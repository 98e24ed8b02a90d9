"""An engine in memory: its hosts are threads of the process that drives it."""

import contextlib
import itertools
import json
import queue
import socket
import threading
from collections.abc import Callable
from typing import Any

from stoker.clock import now_s
from stoker.remote.engines.hosts import Backoff, Bounds, to_give_back
from tests.contract.small_host import serve


class FakeEngine:
    """settings: `cluster` is `fake:N`, N hosts of one CPU; no more run."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._num_places = int(settings["cluster"].partition(":")[2])
        self._bounds = Bounds.of(settings["workers"])
        self._num_wanted = self._bounds.first
        self._news: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._stdin: dict[int, socket.socket | None] = {}
        self._brakes: dict[int, Backoff] = {}
        self._numbers = itertools.count()
        self._has_told = False

    def address_of_trainer(self) -> str:
        return "127.0.0.1"

    def want(self, num_cpus: int) -> None:
        self._num_wanted = self._bounds.clamp(num_cpus)
        self._news.put(lambda: None)

    def publish(self, stats: dict[str, Any]) -> None:
        """Nobody asks."""

    def run(
        self, way: dict[str, Any], tell: Callable[[str], None], resize: Callable[[str, int], None]
    ) -> None:
        while True:
            wanted = self._num_places
            if self._num_wanted is not None:
                wanted = min(wanted, self._num_wanted)
            for number in to_give_back(dict.fromkeys(self._stdin, "here"), wanted):
                resize(f"thread {number}", 0)
                stdin = self._stdin.pop(number)
                if stdin is not None:
                    stdin.close()
            while len(self._stdin) < wanted:
                number = next(self._numbers)
                self._brakes[number] = Backoff()
                resize(f"thread {number}", 1)
                self._start(way, number, tell)
            self._news.get()()

    def _start(self, way: dict[str, Any], number: int, tell: Callable[[str], None]) -> None:
        self._stdin[number] = None
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            if not self._has_told:
                self._has_told = True
                tell(f"a worker cannot be started, and is tried again: {error}")
            self._ended(way, number, tell, 0.0)
            return
        self._stdin[number] = ours

        def live() -> None:
            began_s = now_s()
            said = {**way, "name": f"thread {number}", "node": "here"}
            with theirs, contextlib.suppress(Exception):
                serve(json.loads(json.dumps(said)), theirs.fileno(), threading.get_native_id())
            lived_s = now_s() - began_s
            self._news.put(lambda: self._ended(way, number, tell, lived_s))

        threading.Thread(target=live, daemon=True).start()

    def _ended(
        self, way: dict[str, Any], number: int, tell: Callable[[str], None], lived_s: float
    ) -> None:
        if number not in self._stdin:
            return
        stdin, self._stdin[number] = self._stdin[number], None
        if stdin is not None:
            stdin.close()

        def again() -> None:
            if number in self._stdin:
                self._start(way, number, tell)

        wait_s = self._brakes[number].ended(lived_s)
        threading.Timer(wait_s, lambda: self._news.put(again)).start()
