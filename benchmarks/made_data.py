"""Data that benchmarks make for themselves: once, then found again."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def data_dir() -> Path:
    """Where benchmarks keep made data: BENCH_DATA_DIR, else .data/benchmarks of this checkout."""
    default = Path(__file__).resolve().parent.parent / ".data" / "benchmarks"
    return Path(os.environ.get("BENCH_DATA_DIR", default))


def made_once(name: str, write: Callable[[Path], None]) -> Path:
    """A folder, made by `write` if it is not there: as a whole or not at all."""
    wanted = data_dir() / name
    if wanted.is_dir():
        return wanted
    wanted.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=wanted.parent, prefix=".making-"))
    try:
        write(made)
        made.rename(wanted)
    except OSError:
        if not wanted.is_dir():
            raise
        # somebody else was quicker: theirs are the same files
    finally:
        shutil.rmtree(made, ignore_errors=True)  # which is not there, if it has its name
    return wanted
