"""A stderr that cannot be written, under the summary and the lines that stoker says."""

import os
import sys

import pytest

from tests.process.harness import finished, under_stoker


def full_disk():
    os.dup2(os.open("/dev/full", os.O_WRONLY), 2)


def closed_pipe():
    reader, writer = os.pipe()
    os.dup2(writer, 2)
    os.close(reader)


WAYS = {"full disk": ("", full_disk), "closed pipe": ("sigpipe", closed_pipe)}
WAYS |= {"broken object": ("broken", None), "none": ("none", None)}


@pytest.mark.parametrize(("what", "preexec"), WAYS.values(), ids=WAYS)
def test_a_stderr_that_cannot_be_written_hurts_nobody(tmp_path, what, preexec):
    command = [sys.executable, "speechless.py", what]
    flags = ["--chains=2"]
    ours = finished([*under_stoker(*flags, quiet=False), *command], tmp_path, preexec=preexec)
    assert (ours.returncode, ours.leftovers) == (0, {})
    assert ours.stdout == "[[0, 1], [2, 3], [4, 5], [6, 7]]\n" * 2
