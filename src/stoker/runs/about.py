"""Tells what a run is: what was started where, with what. Its log begins with it."""

import os
import sys
from pathlib import Path
from typing import Any

from stoker import __version__
from stoker.clock import wall_ns
from stoker.config import Settings


def about(settings: Settings) -> dict[str, Any]:
    """Return what a log says of the run of this process. Of the settings only those that were given."""
    torch = sys.modules.get("torch")
    given = {
        name: value if isinstance(value, bool | int | float | str) else str(value)
        for name, value in settings._asdict().items()
        if value != Settings._field_defaults[name]
    }
    return {
        "began_unix_s": wall_ns() / 1e9,
        "command": sys.orig_argv,
        "folder": _folder(),
        "host": os.uname().nodename,
        "settings": given,
        "stoker": __version__,
        "python": sys.version.partition(" ")[0],
        "torch": str(getattr(torch, "__version__", "")),
    }


def _folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # removed
        return ""
