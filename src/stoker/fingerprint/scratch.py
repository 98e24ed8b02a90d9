"""Tells which attributes objects of libraries write to themselves while they work, and never read back.

Random transforms of some libraries note each call's numbers in themselves: what such an object holds
of numbers is no trace, for each call writes it anew.

MONAI's readers note the files that they have just read, and its transforms make a thread's own record
of a setting when they are first used: as long as that says what the environment does, it is as if it
were not there.
Source: monai/data/image_reader.py and transforms/inverse.py, 1.6
"""

import os
import sys
import threading
from typing import Any

import torch

from stoker.trusted import is_trusted

_OF_READERS = {"filenames", "has_series"}
GENERATOR = "R"  # the attribute of MONAI's random transforms that holds theirs
_RANDOM = {"albumentations", "monai"}
_NAMES = {*_OF_READERS, "_tracing"}


def is_scratch(kind: type, name: str, value: object) -> bool:
    """Whether an attribute of an object of this class may be left out of what it depends on."""
    if name not in _NAMES:
        return False
    if name in _OF_READERS:
        return kind.__module__ == "monai.data.image_reader"
    traces = os.environ.get("MONAI_TRACE_TRANSFORM", "1") != "0"
    return isinstance(value, threading.local) and vars(value) in ({}, {"value": traces})


def notes_calls(kind: type) -> bool:
    """Whether objects of this class note each call's numbers in themselves, as random transforms do."""
    return kind.__module__.partition(".")[0] in _RANDOM and is_trusted(kind.__module__)


def is_note(value: Any) -> bool:
    """Whether a value is numbers or text alone, or a list, tuple or dict of such."""
    if isinstance(value, dict):
        return all(map(is_note, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(is_note, value))
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        return True
    return value is None or isinstance(value, (bool, int, float, str, slice, range, torch.Tensor))
