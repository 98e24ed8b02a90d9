"""A process that drives an engine, as the receiver does: what the engine started ends with it.

    python -m tests.contract.engine_driver KIND      settings and way come as two lines of JSON on stdin

then a line an order: `want N`, `nofile N` (a limit to open files; 0: as before), `deaf 1` (Ray's head
does not answer; 0: as before). Says what the engine says, a line each: `tell TEXT`, `resize NAME N`, `failed ERROR`.
"""

import json
import os
import resource
import sys
import threading
from typing import Any

from stoker.remote.engines.engine import Engine, make_engine


def make(kind: str, settings: dict[str, Any]) -> Engine:
    if kind == "fake":
        from tests.contract.fake_engine import FakeEngine

        return FakeEngine(settings)
    return make_engine(settings)


def say(word: str, text: str) -> None:
    """A line in one piece: two threads speak."""
    os.write(1, f"{word} {text}\n".encode())


def hears() -> list[dict[str, Any]]:
    import ray

    return list(ray._private.state.nodes())


def deaf() -> list[dict[str, Any]]:
    raise ConnectionError("the head is away")


def obey(engine: Engine) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    for line in sys.stdin:
        order, number = line.split()
        if order == "want":
            engine.want(int(number))
        elif order == "nofile":
            limit = int(number) or before[0]
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
        elif order == "deaf":
            import ray

            ray.nodes = deaf if int(number) else hears  # type: ignore[assignment]
        say("obeyed", order)
    os._exit(0)


def main() -> None:
    settings, way = json.loads(sys.stdin.readline()), json.loads(sys.stdin.readline())
    try:
        engine = make(sys.argv[1], settings)
        say("address", engine.address_of_trainer())
        threading.Thread(target=obey, args=(engine,), daemon=True).start()
        engine.run(
            way,
            lambda text: say("tell", text),
            lambda name, num_cpus: say("resize", f"{name} {num_cpus}"),
        )
    except BaseException as error:
        say("failed", repr(error))
    os._exit(1)


main()
