"""What tests of remembered samples share: loaders of impure datasets, epochs in which something
happens to the shelf, and what the shelf knows afterwards. Not a test."""

import os
import random
import signal

from torch.utils.data import DataLoader

from stoker.config import Settings
from stoker.memory.store import shelf as shelf_module
from stoker.memory.store import shelves
from tests.equality import impure

EPOCHS = 4
ON, AUDIT = Settings(quiet=True, cache="auto"), Settings(quiet=True, cache="audit")
KEPT = [kind for kind in impure.ALL if kind.becomes == impure.KEPT]


def loader_of(kind, folder, **options):
    if kind in impure.COLLATED:
        options["collate_fn"] = impure.as_numbers
    options = {"batch_size": 4, "shuffle": True, **options}
    return lambda workers: DataLoader(kind(folder), num_workers=workers, **options)


def epochs(loader, num=EPOCHS):
    for _ in range(num):
        yield from loader


def place_of(kind):
    """What the shelf knows of a dataset: why it is left alone, and the counts."""
    found = [
        (why, counts)
        for name, why, counts in shelves.own_shelf().places().values()
        if name.endswith(f" {kind.__qualname__}")
    ]
    assert len(found) == 1, found
    return found[0]


def rewrite(path, text, keeps_size):
    """With another size, or with the size and the time of change that it had."""
    before = path.stat()
    path.write_text(text * before.st_size if keeps_size else text * (before.st_size + 2))
    if keeps_size:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def damage(shelf, rng):
    """Write noise over the index, the values and the rows; not over what a worker alone uses."""
    memory = shelf._arena.view(0, shelf._arena.nbytes)
    used = [*range(4096, shelf_module._SEATS_AT, 64)]
    for seat, tail in enumerate(shelf._tails):
        start = shelf_module._SEATS_AT + seat * shelf.span_nbytes
        used += range(start, start + tail, 64)
    used = [at for at in used if any(memory[at : at + 64])]
    with values_open(shelf):
        for at in rng.sample(used, len(used) // 3):
            memory[at + rng.randrange(64)] ^= rng.randrange(1, 256)


def values_open(shelf):
    """While values may be written to, which the shelf forbids."""
    assert shelf.is_protected
    return shelf._writable(0, shelf_module.NUM_SEATS * shelf.span_nbytes)


def with_small_index(monkeypatch):
    """So that damage hits what is used."""
    index_nbytes = shelf_module._SEATS_AT - shelf_module._INDEX_AT
    num_slots = shelf_module._NUM_SLOTS
    monkeypatch.setattr(shelf_module, "_NUM_SLOTS", 1 << 12)
    small_nbytes = (1 << 12) * index_nbytes // num_slots
    monkeypatch.setattr(shelf_module, "_SEATS_AT", shelf_module._INDEX_AT + small_nbytes)


def damaging(monkeypatch):
    """Ten epochs; the shelf, with a small index, is damaged after each one once it has served.

    Damage may hit the rows of the place itself, which then begins anew, and may never serve again.
    """
    rng = random.Random(3)
    with_small_index(monkeypatch)

    def run(loader):
        num_damaged = 0
        for _ in range(10):
            yield from loader
            shelf = shelves.own_shelf()
            if shelf is None:
                continue
            if num_damaged or any(counts.num_hits for _, _, counts in shelf.places().values()):
                damage(shelf, rng)
                num_damaged += 1
        assert shelf is None or num_damaged >= 4

    return run


def killing(loader):
    """Six epochs, in each of which a worker is killed."""
    for epoch in range(6):
        iterator = iter(loader)
        for number, batch in enumerate(iterator):
            if number == epoch:
                os.kill(iterator._workers[epoch % 2].pid, signal.SIGKILL)
            yield batch
