"""os.environ, sys.path, the working folder and globals change between epochs, and within one."""

import os
import sys
from pathlib import Path

from torch.utils.data import DataLoader, Dataset

SETTING = 0


class Asks(Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return SETTING, os.environ.get("SETTING"), os.getcwd()[-5:], "added" in sys.path, index


for workers, persistent in ((0, False), (1, False), (1, True)):
    loader = DataLoader(Asks(), None, num_workers=workers, persistent_workers=persistent)
    for epoch in range(2):
        for got in loader:
            print(got)
            SETTING += 1
            os.environ["SETTING"] = str(SETTING)
            Path("below").mkdir(exist_ok=True)
            os.chdir("below" if SETTING % 2 else "..")
        sys.path.append("added")
