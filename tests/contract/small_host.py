"""A host of the engines' contract suite: dials as a real one, says who it is, and takes orders.

What Python runs as a host (the setting `host`): a script, told all by its stdin. An order is a byte:
the code to end with. It ends with 0 when its stdin ends, and with 1 when the trainer is gone.
"""

import json
import os
import select
import sys

from stoker.remote.engines.hosts import UNREACHABLE
from stoker.remote.net.auth import Pass, dial

DIAL_S = 10.0


def serve(said: dict[str, str], stdin: int, pid: int) -> int:
    """The code to end with."""
    token = bytes.fromhex(said["token"])
    hello = {"name": said["name"], "node": said["node"], "pid": pid}
    way = Pass(said["address"], int(said["port"]), token, said["certificate"])
    try:
        trainer = dial(way, hello, DIAL_S)
    except OSError:
        return UNREACHABLE
    try:
        with trainer:
            trainer.settimeout(None)
            ready, _, _ = select.select([trainer, stdin], [], [])
            if stdin in ready:
                return 0
            order = trainer.recv(1)
            return order[0] if order else 1
    except OSError:
        return 1


if __name__ == "__main__":
    line = bytearray()
    while not line.endswith(b"\n"):
        line += os.read(0, 1)
    sys.exit(serve(json.loads(line), 0, os.getpid()))
