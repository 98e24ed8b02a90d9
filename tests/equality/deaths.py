"""Scheduled deaths: a sample kills its own process the first n times that it is asked for.

Counted by files that are created exclusively, so that a replacement knows of the deaths before.
"""

import os
import signal
from pathlib import Path


class Deaths:
    """Sample -> how often it kills the process that asks for it."""

    def __init__(self, folder: Path, schedule: dict[int, int], number: int = signal.SIGKILL):
        self.folder, self.schedule, self.number = folder, schedule, number

    def maybe(self, index: int) -> None:
        for k in range(self.schedule.get(index, 0)):
            try:
                file = self.folder / f"{index}-{k}"
                os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            except FileExistsError:
                continue
            if self.number is None:
                os._exit(3)
            os.kill(os.getpid(), self.number)

    def count(self) -> int:
        return len(list(self.folder.iterdir()))
