"""Take turns between two processes that stay alive, one loader at a time (many_loaders.py).

Promise: a loader's two sides are measured within a second of each other, so that a machine that
drifts or is busy with others hurts both alike; starting up is paid once.
"""

import json
import secrets
import subprocess
import tempfile
from contextlib import ExitStack
from typing import Any, Self

from figures import Pair
from many_loaders import ODD_LOADERS
from sides import LEAVE_LIMIT_S, CannotMeasureError, command, end_all, environment


class Side:
    """A process that runs the loader it is told to. Not thread-safe."""

    def __init__(self, side: str, script: str, flags: tuple[str, ...]) -> None:
        self.name, self._argv = side, command(side, script, flags)
        self._token = secrets.token_hex(8)

    def __enter__(self) -> Self:
        self._err = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            self._argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._err,
            text=True,
            start_new_session=True,
            env=environment(self._token),
        )
        return self

    def __exit__(self, *_: Any) -> None:
        self._process.stdin.close()  # the script's loop over stdin ends
        end_all(self._token, LEAVE_LIMIT_S)
        self._process.wait()
        self._process.stdout.close()
        self._err.close()

    def measure(self, name: str) -> float:
        """Seconds that the loader took; waits for them."""
        try:
            self._process.stdin.write(f"{name}\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())[name]
        except (BrokenPipeError, ValueError, KeyError) as failure:
            self._err.seek(0)
            tail = "\n".join(self._err.read().splitlines()[-12:])
            raise CannotMeasureError(f"{self.name} side, loader {name}:\n{tail}") from failure


class Turns:
    """Rounds of named loaders over both sides."""

    def __init__(self, script: str, flags: tuple[str, ...], other: str) -> None:
        self._sides = {"plain": Side("plain", script, flags), "stoker": Side(other, script, flags)}
        self._stack = ExitStack()
        self._order = list(self._sides.items())

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for side in self._sides.values():
                stack.enter_context(side)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exc: Any) -> None:
        self._stack.__exit__(*exc)

    def round(self, names: list[str] | None = None) -> Pair:
        """Each named loader (all of them, if None) once on each side.

        The sides change places every time: with torch on both, the second one is 4 % slower.
        """
        pair: Pair = {"plain": {}, "stoker": {}}
        for name in names or ODD_LOADERS:
            for side, process in self._order:
                pair[side][name] = process.measure(name)
        self._order.reverse()
        return pair
