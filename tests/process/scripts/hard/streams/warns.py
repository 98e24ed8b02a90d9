"""Warnings in workers: once for each place and worker, as errors, and recorded."""

import gc
import warnings

from torch.utils.data import DataLoader, Dataset


class Warns(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        warnings.warn("always the same", stacklevel=1)
        warnings.warn(f"of {index}", DeprecationWarning, stacklevel=1)
        return index


print([b.tolist() for b in DataLoader(Warns(), 2, num_workers=1)])
warnings.simplefilter("error")
try:
    print([b.tolist() for b in DataLoader(Warns(), 2, num_workers=1)])
except UserWarning as warning:
    print(str(warning).splitlines()[-1])
gc.collect()  # a forgotten iterator complains in the next one's workers
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print([b.tolist() for b in DataLoader(Warns(), 2, num_workers=0)], len(caught))
    print([b.tolist() for b in DataLoader(Warns(), 2, num_workers=1)], len(caught))
