"""print, sys.stdout.write and os.write in a worker, flushed and not, beside the trainer's own."""

import os
import sys

from torch.utils.data import DataLoader, Dataset


class Prints(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        print("sample", index)
        print("to stderr", index, file=sys.stderr)
        sys.stdout.write("no newline ")
        if index % 2:
            sys.stdout.flush()
        os.write(1, b"direct\n")
        return index


sys.stdout.flush()
for batch in DataLoader(Prints(), 4, num_workers=1):
    sys.stdout.flush()
print("trainer", batch.tolist())
