"""Niceness, CPU affinity, umask, groups and limits change between epochs; workers have them too."""

import os
import resource
from pathlib import Path

from torch.utils.data import DataLoader, Dataset


class About(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        mask = os.umask(0)
        os.umask(mask)
        limits = (
            resource.getrlimit(resource.RLIMIT_CORE),
            resource.getrlimit(resource.RLIMIT_NOFILE),
        )
        return os.nice(0), len(os.sched_getaffinity(0)), oct(mask), str(Path.cwd()), limits


for epoch in range(3):
    print(list(DataLoader(About(), None, num_workers=1)))
    os.nice(1)
    os.umask(0o077 >> epoch)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    Path(f"folder{epoch}").mkdir()
    os.chdir(f"folder{epoch}")
