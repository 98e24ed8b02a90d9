"""Reports from the script's processes what `stoker probe` has found, and that they may be ended.

Ban: imports neither torch nor numpy.
"""

import json
import os
from pathlib import Path

from stoker.verify.record import ENOUGH, PROBE, PROBED, STOPS


def tell(text: str, *, is_found: bool) -> None:
    """Write the result of the probe: a table, or why there is none (then this process stops)."""
    folder = Path(os.environ[PROBE])
    part = folder / f"{PROBED}.{os.getpid()}"
    part.write_text(json.dumps({"text": text, "is_found": is_found}))
    part.replace(folder / PROBED)
    if not is_found:
        stop()


def stop() -> None:
    """Tell `stoker probe` that this process has seen enough and is to be ended."""
    Path(os.environ[PROBE], ENOUGH).touch()
    try:
        pipe = os.open(Path(os.environ[PROBE], STOPS), os.O_WRONLY | os.O_NONBLOCK)
    except OSError:  # `stoker probe` was killed
        return
    os.write(pipe, b"%d\n" % os.getpid())
    os.close(pipe)
