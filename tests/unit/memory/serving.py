"""Decoders of a worker that is alone, until all comes from the shelf. Not a test."""

import gc

from stoker.memory import phases
from stoker.memory.decoders import decoders
from stoker.memory.desk import Desk
from stoker.memory.phases import Phase
from stoker.memory.store import ShelfAccess, make_shelf


def alone(monkeypatch):
    """Decoders of a worker that is alone; off again afterwards."""
    monkeypatch.setattr(phases, "HIT_S", 1e-6)
    monkeypatch.setattr(phases, "FREE_S", 100.0)
    monkeypatch.setattr(decoders, "_active", None)
    desk = Desk(ShelfAccess(make_shelf(1 << 26), 0, b"loader", False), is_only_worker=True)
    made = decoders.Decoders(desk)
    # Hypothesis times each collection; one that falls into a watched call would count as its own.
    callbacks, gc.callbacks[:] = list(gc.callbacks), []
    yield made
    gc.callbacks[:] = callbacks
    made._is_on = False
    decoders.restore()
    made._decoders.clear()


def served(memory, read, paths, name="PIL.Image.open"):
    """Read until all comes from the shelf; returns the decoder."""
    for _ in range(40):
        for path in paths:
            memory.during(read, path)
        decoder = memory._decoders[name]
        counts, why = decoder._tally.known()
        assert not why
        if decoder._phase is Phase.SERVING and counts.num_stored >= len(paths):
            return decoder
    raise AssertionError(counts)
