"""Garbage collection off, with callbacks, a switch interval, a recursion limit, a locale."""

import gc
import locale
import sys

from torch.utils.data import DataLoader, Dataset

seen = []


class Asks(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return (
            gc.isenabled(), gc.get_threshold(), sys.getrecursionlimit(),
            round(sys.getswitchinterval(), 4), locale.setlocale(locale.LC_ALL), sys.get_int_max_str_digits(),
        )  # fmt: skip


gc.disable()
gc.set_threshold(50, 5, 5)
gc.callbacks.append(lambda phase, info: seen.append(phase))
sys.setrecursionlimit(777)
sys.setswitchinterval(0.0005)
locale.setlocale(locale.LC_ALL, "C.UTF-8")
for workers in (0, 1, 2):
    print(list(DataLoader(Asks(), None, num_workers=workers)))
print(
    gc.isenabled(),
    gc.get_threshold(),
    len(gc.callbacks),
    sys.getrecursionlimit(),
)
