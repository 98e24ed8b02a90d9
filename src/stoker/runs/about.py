"""Tells what a run is: what was started where, with what. Its log begins with it."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stoker import __version__
from stoker.clock import wall_ns
from stoker.config import ORIGINS, Settings


def about(settings: Settings, environ: Mapping[str, str]) -> dict[str, Any]:
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
        "origins": dict(
            line.split("=", 1) for line in environ.get(ORIGINS, "").splitlines() if "=" in line
        ),
        "world": _world(environ),
        "stoker": __version__,
        "python": sys.version.partition(" ")[0],
        "torch": str(getattr(torch, "__version__", "")),
    }


def _world(environ: Mapping[str, str]) -> str | None:
    """Return what the ranks of one job have in common, as launchers tell it; None where there is one process."""
    if "RANK" not in environ and "SLURM_PROCID" not in environ:
        return None
    names = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID", "MASTER_ADDR", "MASTER_PORT")
    return " ".join(environ.get(name, "") for name in names)


def _folder() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # removed
        return ""
