"""Tries again what may go well the next time, with growing pauses, within a time limit.

Pure but for the pauses, which the caller hands in.
"""

import random
from collections.abc import Callable
from typing import TypeVar

from stoker.clock import Deadline
from stoker.storage.origins import Again

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
LIMIT_S = 60.0  # then a read fails, as that of a disk which does not answer

T = TypeVar("T")


def patiently(
    call: Callable[[], T],
    deadline: Deadline,
    pause: Callable[[float], object],
    on_retry: Callable[[Again], None],
) -> T:
    """Return what `call` returns. Raises the last Again once the deadline is over, any other error at once.

    pause: waits so many seconds; on_retry: told of each failure that is tried again.
    Pauses double from 0.1 to 5 s; half of each is random, so that many readers do not come back at once.
    """
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            return call()
        except Again as error:
            left_s = deadline.left_s()
            wait_s = pause_s * random.uniform(0.5, 1.0)
            if left_s is not None and left_s < wait_s:
                raise
            on_retry(error)
        pause(wait_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
