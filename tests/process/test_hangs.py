"""A worker that hangs in C code: after a minute one line says where it stands (here after two seconds)."""

import sys
import time

import pytest

from tests.process.harness import PATIENCE_S, started, under_stoker


@pytest.mark.parametrize(
    ("how", "place"),
    [
        ("lock", "hangs.py:20 in decode"),
        ("gil", "hangs.py:24 in decode"),
        (
            "library",
            "multiprocessing/synchronize.py:{line} in wait, called at hangs.py:26 in decode",
        ),
    ],
)
def test_it_is_said_in_which_line_each_worker_stands(tmp_path, how, place):
    command = [*under_stoker(quiet=False), sys.executable, "hangs.py", how]
    with started(command, tmp_path) as running:
        end_s = time.monotonic() + PATIENCE_S
        while "no batch for" not in (told := running.read("stderr")):
            assert running.process.poll() is None and time.monotonic() < end_s, told
    begin, _, end = place.partition("{line}")
    assert told.startswith(f"stoker: hangs.py:39: no batch for 2 s; worker 0: {begin}")
    others = ("waiting for work", "not known")  # the second if it has only just begun
    assert told.endswith(tuple(f"{end}; worker 1: {other}\n" for other in others))
    assert len(told.splitlines()) == 1
