"""prefetch_factor=0 passes the loader's own check and fails where torch starts its workers."""
# ends: 1
# stays with torch

from torch.utils.data import DataLoader

print("before")
for batch in DataLoader(range(4), 2, num_workers=1, prefetch_factor=0):
    print(batch.tolist())
