"""Make an unmodified PyTorch training script as fast as its accelerator allows.

Public API: everything that `__all__` names; all else may change without notice. A script that is
started by `stoker run` needs none of it: it is for notebooks, and for programs that start themselves.
Importing this package never imports torch, and costs well under a millisecond.
"""

TYPE_CHECKING = False  # as typing's, which costs 3 ms to import
if TYPE_CHECKING:
    from typing import Any

    from stoker.api.snapshot import Report
    from stoker.errors import (
        BrokenGuarantee,
        ClusterUnavailable,
        ConfigError,
        StokerError,
        StorageUnavailable,
    )

__version__ = "0.1.0"

__all__ = [
    "BrokenGuarantee",
    "ClusterUnavailable",
    "ConfigError",
    "StokerError",
    "StorageUnavailable",
    "__version__",
    "install",
    "report",
    "uninstall",
]


def __getattr__(name: str) -> "Any":
    """Import the errors when they are asked for: every process of a run imports this package."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from stoker import errors

    return getattr(errors, name)


def __dir__() -> "list[str]":
    return sorted({*globals(), *__all__})


def install(**settings: "Any") -> None:
    """Put stoker into this process, as `stoker run` does: loaders that are iterated from now on are
    taken over, also those that exist already, whether torch was imported or not.

    settings: by the names of docs/configuration.md, as `chains="auto"`, `memory="4G"`, `quiet=True`;
    what is not given comes from STOKER_* variables, pyproject.toml and the user's file. Called again
    it starts a new run with new settings. Raises ConfigError, and then changes nothing.
    """
    from stoker.api.install import install

    install(settings)


def uninstall() -> None:
    """Leave loaders to torch again. Iterators that exist go on as they are."""
    from stoker.api.install import uninstall

    uninstall()


def report() -> "Report":
    """Return the run of this process so far: a frozen value, which prints as the summary's lines and
    which a notebook shows as a table. Its `json` is the whole report (docs/report.md)."""
    from stoker.api.snapshot import report

    return report()


def load_ipython_extension(shell: "Any") -> None:
    """Install stoker and show a summary below each cell that took batches: `%load_ext stoker`."""
    from stoker.api.notebook import load

    load(shell)


def unload_ipython_extension(shell: "Any") -> None:
    """Undo `%load_ext stoker`: `%unload_ext stoker`."""
    from stoker.api.notebook import unload

    unload(shell)
