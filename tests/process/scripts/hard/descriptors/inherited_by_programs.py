"""Programs that are started in mid-epoch, and by samples, look at what they have inherited."""

import subprocess

from torch.utils.data import DataLoader, Dataset

LIST = "ls /proc/self/fd | tr '\\n' ' '"


def inherited():
    return subprocess.run(
        ["sh", "-c", LIST], close_fds=False, capture_output=True, text=True
    ).stdout


class Lists(Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return inherited()


for persistent in (False, True):
    loader = DataLoader(Lists(), None, num_workers=1, persistent_workers=persistent)
    for _ in range(2):
        for listed in loader:
            print(listed, inherited())
