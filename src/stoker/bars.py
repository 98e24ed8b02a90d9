"""Tells whether the terminal is free for a line of ours, or another package draws there.

Promise: imports none of the packages that it looks for, and never raises.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from stoker.config import Settings

# Their bars cannot be asked for: where one is imported, it may draw at any time.
_UNSEEN = ("fastprogress", "alive_progress", "progressbar", "enlighten", "ultralytics")


def may_draw(settings: "Settings") -> bool:
    """Whether stderr is a terminal that knows escape sequences, and the settings permit a line."""
    if settings.quiet or settings.progress == "off" or os.environ.get("TERM", "") in ("", "dumb"):
        return False
    if settings.progress == "auto" and (os.environ.get("NO_COLOR") or _is_any(_UNSEEN)):
        return False
    try:
        return sys.stderr is not None and sys.stderr.isatty()
    except Exception:  # it is closed, or an object of the script's
        return False


def are_drawn() -> bool:
    """Whether a bar of tqdm or rich is drawn, as Lightning and transformers do through them."""
    try:
        return _are_tqdms() or _are_richs()
    except Exception:  # modules of these names that are others
        return True


def _are_tqdms() -> bool:
    """Whether a tqdm bar of any class exists: all of them are in the base class's set."""
    module = sys.modules.get("tqdm")
    return module is not None and bool(list(getattr(module.tqdm, "_instances", [])))


def _are_richs() -> bool:
    """Whether a live display has replaced stdout or stderr, or the package's own console has one."""
    if "rich" not in sys.modules:
        return False
    if any(type(stream).__module__.startswith("rich.") for stream in (sys.stdout, sys.stderr)):
        return True
    console = getattr(sys.modules["rich"], "_console", None)
    return any(getattr(console, name, None) for name in ("_live", "_live_stack"))


def _is_any(names: "Iterable[str]") -> bool:
    return any(name in sys.modules for name in names)
