"""Starts a host, which ends with whoever starts it from its first moment on: torch takes seconds to import.

python -m stoker.remote.host.start          its Pass, and who it is, come on stdin as JSON
"""

import json
import select
import sys

from stoker.local.forks import die_with_parent


def run() -> int:
    line = sys.stdin.buffer.readline()
    if not line:
        return 0  # the engine has ended meanwhile
    said = json.loads(line)
    if said.get("is_bound"):
        die_with_parent()
        if is_over(sys.stdin.fileno()):  # the parent had ended before
            return 0
    from stoker.remote.host import host

    return host.run(said)


def is_over(fd: int) -> bool:
    """Whether nobody holds the other end of this pipe any more."""
    poller = select.poll()
    poller.register(fd, 0)
    return bool(poller.poll(0))


if __name__ == "__main__":
    sys.exit(run())
