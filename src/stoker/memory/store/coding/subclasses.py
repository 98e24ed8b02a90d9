"""Describes tensors of a class of their own, and brings them back: MONAI's MetaTensor, and the images,
masks and videos of torchvision's transforms v2.

What such a tensor has beside its values lies in its `__dict__`; its class makes it from a tensor by
no code of its own.

Promise: only for exactly these classes; what their `__dict__` holds is kept as any value is.
"""

import sys
from typing import Any

import torch

# Source: monai/data/meta_tensor.py, 1.6; torchvision/tv_tensors, 0.28
_CLASSES = (
    ("monai.data.meta_tensor", "MetaTensor"),
    ("torchvision.tv_tensors._image", "Image"),
    ("torchvision.tv_tensors._mask", "Mask"),
    ("torchvision.tv_tensors._video", "Video"),
)
# Their members are text: keys and values of what MONAI tells of an image.
_ENUMS = ("monai.utils.enums",)


def number_of(kind: type) -> int | None:
    """Return the number of a known class of tensors; None of others."""
    name = (kind.__module__, kind.__qualname__)
    return _CLASSES.index(name) if name in _CLASSES and _class(name) is kind else None


def is_loaded(number: int) -> bool:
    """Whether a number is that of a known class, so that `made` can be called."""
    return number in range(len(_CLASSES)) and _class(_CLASSES[number]) is not None


def plain(value: torch.Tensor) -> torch.Tensor:
    """View such a tensor as one of torch's own class."""
    with torch._C.DisableTorchFunctionSubclass():
        return value.as_subclass(torch.Tensor)


def made(number: int, values: torch.Tensor, state: dict[str, Any]) -> Any:
    """Return a tensor of a known class."""
    kind = _class(_CLASSES[number])
    found = values.as_subclass(kind)
    vars(found).update(state)
    return found


def _class(name: tuple[str, str]) -> Any:
    return getattr(sys.modules.get(name[0]), name[1], None)


def member_of(value: Any) -> tuple[str, str, str] | None:
    """Return module, class and name of a member of one of MONAI's enums of text; None of others."""
    kind = type(value)
    if kind.__module__ not in _ENUMS or not isinstance(value, str):
        return None
    name = getattr(value, "name", None)
    found = getattr(kind, "__members__", {}).get(name)
    return (kind.__module__, kind.__qualname__, str(name)) if found is value else None


def member(module: str, kind: str, name: str) -> Any:
    return getattr(sys.modules[module], kind)[name]


def is_member(told: Any) -> bool:
    """Whether this is what `member_of` returns."""
    return type(told) is tuple and told[0] in _ENUMS and member_of(member(*told)) == told
