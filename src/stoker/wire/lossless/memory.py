"""Views a tensor's memory as a codec takes it, and provides memory for what the codec writes."""

import math
import weakref
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]


class Dense(NamedTuple):
    """A tensor's elements as they lie in memory, and the order of its axes there."""

    flat: Array
    shape: tuple[int, ...]  # as the tensor shows it
    order: tuple[int, ...]  # its axes from the widest stride to the narrowest

    def around(self, axis: int | None) -> tuple[int, int]:
        """Return (channels, elements of one channel in a row) if `axis` is that of the channels."""
        if axis is None:
            return 1, self.flat.size
        place = self.order.index(axis % len(self.shape))
        return self.shape[axis], math.prod(self.shape[a] for a in self.order[place + 1 :])


def dense(shown: Array) -> Dense | None:
    """View a tensor as dense memory; None if it has gaps, overlaps or elements we do not know."""
    if shown.dtype.kind not in "fiub" or not shown.dtype.isnative or not shown.flags.aligned:
        return None
    order = tuple(sorted(range(shown.ndim), key=lambda axis: -shown.strides[axis]))
    turned = shown.transpose(order)
    return Dense(turned.reshape(-1), shown.shape, order) if turned.flags.c_contiguous else None


class Scratch:
    """Memory for encoded data, used again: first touch of fresh pages costs 20x a second one."""

    MAX_KEPT = 4

    def __init__(self) -> None:
        self._free: list[Array] = []

    def take(self, nbytes: int) -> Array:
        """Return uint8 memory; free again once nothing holds this array, as its `data` does."""
        fitting = [whole for whole in self._free if nbytes <= whole.size <= 2 * nbytes]
        whole = fitting[0] if fitting else np.empty(nbytes, np.uint8)
        # What another thread gives back while this list is made is lost to us, not leaked.
        self._free = [other for other in self._free if other is not whole]
        part = whole[:nbytes]
        weakref.finalize(part, self._give, whole).atexit = False
        return part

    def _give(self, whole: Array) -> None:
        self._free.append(whole)
        del self._free[: -self.MAX_KEPT]
