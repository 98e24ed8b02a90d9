"""time.time, monotonic, perf_counter and sleep are frozen by the script, as freezegun does."""

import time

from torch.utils.data import DataLoader, Dataset


class Asks(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return time.time(), time.monotonic(), index


real = {
    name: getattr(time, name)
    for name in ("time", "monotonic", "perf_counter", "sleep", "time_ns", "monotonic_ns")
}
for name in real:
    setattr(time, name, lambda *args: 0)
for workers, persistent in ((0, False), (2, False), (2, True)):
    loader = DataLoader(Asks(), 2, num_workers=workers, persistent_workers=persistent)
    for _ in range(2):
        print([[x.tolist() for x in b] for b in loader])
del loader
for name, function in real.items():
    setattr(time, name, function)
