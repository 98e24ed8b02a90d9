"""The script may have forty descriptors."""

import resource

from torch.utils.data import DataLoader

resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
for workers, persistent in ((0, False), (2, False), (2, True)):
    loader = DataLoader(range(8), 2, num_workers=workers, persistent_workers=persistent)
    for _ in range(3):
        print([b.tolist() for b in loader])
