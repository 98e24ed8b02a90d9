"""Tells whether a value is its holder's alone, so that to keep it and make it anew shows nowhere."""

import sys
from typing import Any

from stoker.memory.store.coding import subclasses
from stoker.memory.store.coding.layout import IMMUTABLE, PLAIN


def is_alone(holder: Any, key: Any) -> bool:
    """Whether nothing but holder[key] holds that value, nor anything mutable inside it."""
    kind = type(holder[key])
    if kind in IMMUTABLE or _is_scalar(holder[key]) or subclasses.member_of(holder[key]):
        return True
    if kind is tuple and all(type(each) in PLAIN for each in holder[key]):
        return True  # a constant of the code's
    if _num_holders(holder, key) != _ALONE:
        return False
    if kind is dict:
        return all(is_alone(holder[key], each) for each in holder[key])
    if kind is list or kind is tuple:
        return all(is_alone(holder[key], each) for each in range(len(holder[key])))
    is_image = (kind.__module__, kind.__qualname__) == ("PIL.Image", "Image")
    if is_image or subclasses.number_of(kind) is not None:
        if _num_holders_of_state(holder[key]) != _STATE_ALONE:
            return False
        return all(is_alone(vars(holder[key]), each) for each in vars(holder[key]))
    return True


def _is_scalar(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.generic)


def _num_holders(holder: Any, key: Any) -> int:
    return sys.getrefcount(holder[key])


def _num_holders_of_state(value: Any) -> int:
    inside = vars(value)
    return sys.getrefcount(inside)


_ALONE = _num_holders([object()], 0)
_STATE_ALONE = _num_holders_of_state(type("_State", (), {})())
