"""Every warning is an error while loaders run, those of forks in threads and of closed files too."""

import gc
import sys
import warnings

from torch.utils.data import DataLoader

warnings.simplefilter("error")
sys.unraisablehook = lambda raised: print("unraisable", raised.exc_type.__name__, raised.exc_value)
for persistent in (False, True):
    loader = DataLoader(range(8), 2, num_workers=2, persistent_workers=persistent)
    for _ in range(2):
        print([b.tolist() for b in loader])
        next(iter(loader))
        gc.collect()
print([b.tolist() for b in DataLoader(range(8), 2)])
