"""sys.exit with a text in mid-epoch, with a persistent loader open beside: exit code 1."""
# ends: 1

import sys

from torch.utils.data import DataLoader

persistent = DataLoader(range(8), 2, num_workers=2, persistent_workers=True)
beside = iter(persistent)
print(next(beside).tolist())
for batch in DataLoader(range(20), 2, num_workers=2):
    print(batch.tolist())
    if batch[0] == 4:
        sys.exit("that is enough")
