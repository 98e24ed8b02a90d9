"""Starts a host, which ends with whoever starts it from its first moment on: torch takes seconds to import.

python -m stoker.remote.host.start          its Pass, and who it is, come on stdin as JSON
"""

import json
import select
import sys
from typing import Any

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
    if "mounts_away" in said:  # before torch has threads
        told = {**said["mounts_away"]}
        told["way"] = {**told["way"], "node": said["node"]}
        said["cannot"], said["note"] = mount_all(told)
    from stoker.remote.host import host

    return host.run(said)


def mount_all(told: dict[str, Any]) -> tuple[str, str]:
    """Mount what the run does. Returns why that failed, so that this host is of no use, and why the trainer's
    own folders cannot be shown; empty if they did not."""
    from stoker.errors import ConfigError, StorageUnavailable
    from stoker.local.sizing import CACHE_FRAC_OF_FREE, available_nbytes
    from stoker.storage.mounting.elsewhere import MountsAway, mount_here

    try:
        return "", mount_here(MountsAway(**told), int(available_nbytes() * CACHE_FRAC_OF_FREE / 2))
    except (ConfigError, StorageUnavailable, OSError) as error:
        return str(error), ""


def is_over(fd: int) -> bool:
    """Whether nobody holds the other end of this pipe any more."""
    poller = select.poll()
    poller.register(fd, 0)
    return bool(poller.poll(0))


if __name__ == "__main__":
    sys.exit(run())
