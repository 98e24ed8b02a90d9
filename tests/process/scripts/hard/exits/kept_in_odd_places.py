"""Iterators, some half made, and batches live on where the interpreter ends them late, or in any order."""

import builtins
import gc
import json
import sys
import threading
import types

import torch
from torch.utils.data import DataLoader, WeightedRandomSampler


class Noisy:
    """Raises when it is ended, as the script's own classes may."""

    def __init__(self, kept):
        self.kept = kept

    def __del__(self):
        raise ValueError("the script's own")


def iterator(**options):
    return iter(DataLoader(torch.rand(16, 40_000), 2, **options))


def batches():
    kept = []
    for options in ({"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}, {}):
        made = iterator(**options)
        kept.append((made, next(made), next(made)))
    return kept


def hold(is_ready):
    kept = batches()
    is_ready.set()
    threading.Event().wait()
    print(len(kept))


gc.disable()
for bad in (5, WeightedRandomSampler(torch.zeros(3), 4)):
    for num_workers in (0, 1):
        try:
            next(iterator(sampler=bad, num_workers=num_workers))
        except (TypeError, RuntimeError) as error:
            print(type(error).__name__, error)
builtins.kept = batches()
sys.kept = batches()
json.kept = batches()
torch.kept = batches()
sys.modules["of_its_own"] = types.ModuleType("of_its_own")
sys.modules["of_its_own"].kept = batches()
cycle = batches()
cycle.append(cycle)
del cycle
Noisy(batches())
ready = threading.Event()
threading.Thread(target=hold, args=(ready,), daemon=True).start()
ready.wait()
print("the end")
