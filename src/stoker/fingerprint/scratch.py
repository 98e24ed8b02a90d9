"""Tells which attributes objects of libraries write to themselves while they work, and never read back.

MONAI's readers note the files that they have just read, and its transforms make a thread's own record
of a setting when they are first used: as long as that says what the environment does, it is as if it
were not there.
Source: monai/data/image_reader.py and transforms/inverse.py, 1.6
"""

import os
import threading

_OF_READERS = {"filenames", "has_series"}
_NAMES = {*_OF_READERS, "_tracing"}


def is_scratch(kind: type, name: str, value: object) -> bool:
    """Whether an attribute of an object of this class may be left out of what it depends on."""
    if name not in _NAMES:
        return False
    if name in _OF_READERS:
        return kind.__module__ == "monai.data.image_reader"
    traces = os.environ.get("MONAI_TRACE_TRANSFORM", "1") != "0"
    return isinstance(value, threading.local) and vars(value) in ({}, {"value": traces})
