"""Dataset code that prints, warns, logs and draws a progress bar."""

import logging
import sys
import warnings

from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO)


class Talks(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        print("sample", index)
        warnings.warn("once", stacklevel=1)
        logging.info("sample %d", index)
        sys.stderr.write(f"\r{index}/4")
        sys.stdout.write("no newline;")
        return index


print("before the loop, not flushed", end=" ")
for persistent in (False, True):
    loader = DataLoader(Talks(), 2, num_workers=1, persistent_workers=persistent)
    for _ in range(2):
        for _ in loader:
            pass
    del loader
print("after the loop")
