"""Modules of the script's own are called config, report, stream, wire, worker, clock and errors."""

import sys
import types

from torch.utils.data import DataLoader, Dataset

for name in ("config", "report", "stream", "wire", "worker", "clock", "errors", "order", "cluster"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].VALUE = name


class Imports(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        import clock
        import config

        return config.VALUE, clock.VALUE


print(
    list(DataLoader(Imports(), 2, num_workers=2)),
    [n for n in ("xxhash", "cloudpickle") if n in sys.modules and n != "xxhash"],
)
