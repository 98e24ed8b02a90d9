"""Reads where the random generators stand, to tell whether a computation has drawn from them.

A generator of the Mersenne twister counts the words that it has handed out; its state is computed
anew every 624. So the count and one word of the state tell whether anything was drawn, and cost
0.6 us for the three global generators, where their whole states cost 44. Kept normal numbers count
too: every second torch.randn(()) takes one and leaves the count as it was.

Promise: two looks differ if anything was drawn between them, but for 2**-32. Where a generator's
memory does not look as expected, whole states are compared.
Source: ATen/CPUGeneratorImpl.h and core/MT19937RNGEngine.h, torch 2.13; numpy/random/src/mt19937
and legacy-distributions.h, NumPy 2.5; Modules/_randommodule.c, CPython 3.11 to 3.14.
"""

import ctypes
import functools
import pickle
import random
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stoker.fingerprint.data import state_of

NUM_WORDS = 624  # of a Mersenne twister
_STATE_NBYTES = 4 * NUM_WORDS
_LOOK_NBYTES = 3072  # of a generator's memory, in which the state must lie
_NUMPY_KIND = "MT19937"
_KEPT = struct.Struct("i4xd")  # has_gauss, gauss

Look = Callable[[], object]
# Generators that classes of libraries share, by module, class and attribute.
# Source: monai/transforms/transform.py, 1.6
_SHARED = (("monai.transforms.transform", "Randomizable", "R"),)


def _library_generators() -> list[Any]:
    """List the generators that objects of libraries draw from until they get one of their own."""
    found = [
        getattr(getattr(sys.modules.get(module), kind, None), name, None)
        for module, kind, name in _SHARED
    ]
    return [each for each in found if each is not None]


class Generators:
    """The generators that a sample may draw from: the three global ones, libraries', and those that
    its dataset reaches. look: what it returns is to be compared: another, if one of them was drawn
    from."""

    def __init__(self, first: Look, reached: Sequence[Any]) -> None:
        """first: the look at the global ones; reached: by the dataset."""
        self._first, self._reached = first, tuple(reached)

    def look(self) -> object:
        own = self._own()
        # Those of these at their whole states: pickled, for what an array prints is the script's to set.
        return self._first() if not own else (self._first(), pickle.dumps(list(map(state_of, own))))

    def save(self) -> list[Any]:
        """Return their states, to be given to `restore`."""
        has_numpy = sys.modules.get("numpy.random") is not None
        states = [_numpys_state() if has_numpy else None, random.getstate()]
        return [_whole_state(torch.default_generator), *states, list(map(state_of, self._own()))]

    def restore(self, saved: list[Any]) -> None:
        torchs, numpys, pythons, own = saved
        torch.default_generator.set_state(_as_tensor(torchs))
        random.setstate(pythons)
        if numpys is not None:
            sys.modules["numpy.random"].set_state(numpys)
        for generator, state in zip(self._own(), own, strict=False):
            _set_state(generator, state)

    def are_at(self, saved: list[Any]) -> bool:
        """Whether they are where they were when that was saved."""
        return pickle.dumps(self.save()) == pickle.dumps(saved)

    def _own(self) -> tuple[Any, ...]:
        return (*self._reached, *_library_generators())


def _set_state(generator: Any, state: Any) -> None:
    """Set the state of a generator to what `state_of` has returned."""
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(generator, torch.Generator):
        generator.set_state(_as_tensor(state))
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state
    elif hasattr(generator, "set_state"):
        generator.set_state(state)
    else:
        generator.state = state


def _as_tensor(state: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)


def global_look() -> Look:
    """Return a function that looks at torch's, NumPy's and Python's global generators.

    What it returns is to be compared, and nothing else. NumPy's is left out until it is imported.
    """
    looks = [_torchs(torch.default_generator), _pythons(random._inst)]
    if sys.modules.get("numpy.random") is not None:
        looks.append(_numpys_look)
    if len(looks) == 2:
        first, second = looks
        return lambda: (first(), second())
    first, second, third = looks
    return lambda: (first(), second(), third())


def _torchs(generator: Any) -> Look:
    """Return the look at a torch generator on the CPU."""
    start = _state_start()
    if start is None:
        return lambda: _whole_state(generator)
    address = generator._cdata + start
    # before the state: words left, seeded, next; behind it: the normal numbers that are kept
    head = _bytes_at(address - 16, 20)
    tail = _bytes_at(address + _STATE_NBYTES, 32)
    return lambda: (head.tobytes(), tail.tobytes())


def _state_start() -> int | None:
    """Find where in a torch generator's memory its state begins, with one of our own."""
    generator: Any = torch.Generator(device="cpu")
    generator.manual_seed(20261126)
    torch.rand(1, generator=generator)  # the state is computed at the first draw
    told = _whole_state(generator)
    # 8 bytes a word. Source: ATen/CPUGeneratorImpl.cpp, CPUGeneratorImplStateLegacy
    words = memoryview(told[24 : 24 + 8 * NUM_WORDS]).cast("Q")
    state = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    seen = ctypes.string_at(generator._cdata, _LOOK_NBYTES)
    start = seen.find(state[: _STATE_NBYTES // 4])
    if start < 16:
        return None
    return start if _follows(generator, start) else None


def _follows(generator: Any, start: int) -> bool:
    """Whether the bytes around the state change with every kind of draw, and only then."""
    head = _bytes_at(generator._cdata + start - 16, 20)
    tail = _bytes_at(generator._cdata + start + _STATE_NBYTES, 32)
    seen = []
    for shape in ((1,), (1,), (), (), ()):
        seen.append((head.tobytes(), tail.tobytes()))
        generator.get_state()
        if seen[-1] != (head.tobytes(), tail.tobytes()):
            return False
        draw = torch.rand if shape else torch.randn
        draw(shape, generator=generator)
    return len(set(seen)) == len(seen)


def _pythons(generator: random.Random) -> Look:
    """Return the look at one of Python's generators: its index, a word, and a kept normal number."""
    start = object.__basicsize__
    # Two words: the first is the same after each seeding. Source: init_by_array
    index, words = _bytes_at(id(generator) + start, 4), _bytes_at(id(generator) + start + 4, 8)
    _, state, _ = random.Random(7).getstate()
    probe = random.Random(7)
    seen = memoryview(_bytes_at(id(probe) + start, 4 * (NUM_WORDS + 1)).tobytes()).cast("I")
    if list(seen) not in ([*state[-1:], *state[:-1]], list(state)):
        return generator.getstate
    if list(seen) == list(state):  # the index behind the words
        index, words = (
            _bytes_at(id(generator) + start + _STATE_NBYTES, 4),
            _bytes_at(id(generator) + start, 8),
        )
    return lambda: (index.tobytes(), words.tobytes(), generator.gauss_next)  # type: ignore[attr-defined]


def _numpys_look() -> object:
    """Look at NumPy's global generator, whichever set_bit_generator has put there by now."""
    legacy = sys.modules["numpy"].random.mtrand._rand
    memory = _numpys_memory(legacy, legacy._bit_generator)
    if memory is None:
        return pickle.dumps(legacy.get_state(legacy=False))
    words, count, kept = memory
    return words[:8].tobytes(), count.tobytes(), kept.tobytes()


def _numpys_state() -> dict[str, Any]:
    """Return what get_state(legacy=False) of NumPy's global generator returns, in a tenth of its time."""
    numpy: Any = sys.modules["numpy"]
    legacy = numpy.random.mtrand._rand
    memory = _numpys_memory(legacy, legacy._bit_generator)
    if memory is None:
        return legacy.get_state(legacy=False)  # type: ignore[no-any-return]
    words, count, kept = memory
    state = {"key": numpy.frombuffer(words.tobytes(), "u4"), "pos": count.cast("i")[0]}
    has_gauss, gauss = _KEPT.unpack(kept)
    return {"bit_generator": _NUMPY_KIND, "state": state, "has_gauss": has_gauss, "gauss": gauss}


@functools.lru_cache(maxsize=1)
def _numpys_memory(legacy: Any, bits: Any) -> tuple[memoryview, memoryview, memoryview] | None:
    """Return views of the words, of how many are handed out, and of the kept normal number; None if the
    generator's memory does not look so. The cache holds what they are views of."""
    if type(bits).__name__ != _NUMPY_KIND:
        return None
    address = bits.ctypes.state_address
    words, count = _bytes_at(address, _STATE_NBYTES), _bytes_at(address + _STATE_NBYTES, 4)
    state, kept = bits.state["state"], _kept_normal(legacy)
    is_so = state["key"].tobytes() == words and state["pos"] == count.cast("i")[0]
    return (words, count, kept) if is_so and kept is not None else None


def _kept_normal(legacy: Any) -> memoryview | None:
    """Return the view of has_gauss and gauss of NumPy's global generator; None if not found."""
    numpy: Any = sys.modules["numpy"]
    own = numpy.random.RandomState(numpy.random.MT19937(5))
    nbytes = type(own).__basicsize__
    own.standard_normal()
    gauss = own.get_state(legacy=False)["gauss"]
    packed = ctypes.string_at(id(own), nbytes)
    start = packed.find(bytes(ctypes.c_double(gauss)))
    if start < 8 or int.from_bytes(packed[start - 8 : start - 4], sys.byteorder) != 1:
        return None
    own.standard_normal()
    if ctypes.string_at(id(own) + start - 8, 4) != bytes(4):
        return None
    return _bytes_at(id(legacy) + start - 8, 16)


def _whole_state(generator: Any) -> bytes:
    state = generator.get_state()
    return ctypes.string_at(state.data_ptr(), state.nbytes)


def _bytes_at(address: int, nbytes: int) -> memoryview:
    """View memory of a generator, which must outlive the view."""
    return memoryview((ctypes.c_char * nbytes).from_address(address)).cast("B")
