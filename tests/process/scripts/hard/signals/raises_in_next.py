"""A handler raises while the loop waits in next(); the loop catches it and asks again."""

import os
import signal
import time
from pathlib import Path

from torch.utils.data import DataLoader, Dataset


class Alarm(Exception):
    pass


def handler(number, frame):
    Path(f"seen{len(list(Path().glob('seen*')))}").touch()
    raise Alarm


class Signals(Dataset):
    def __init__(self):
        self.trainer = os.getpid()

    def __len__(self):
        return 9

    def __getitem__(self, index):
        if index % 3 == 1:
            os.kill(self.trainer, signal.SIGALRM)
            while not Path(f"seen{index // 3}").exists():
                time.sleep(0.001)
        return index


signal.signal(signal.SIGALRM, handler)
iterator = iter(DataLoader(Signals(), 1, num_workers=1, prefetch_factor=1))
got, num_alarms = [], 0
while True:
    try:
        got.append(next(iterator).item())
    except Alarm:
        num_alarms += 1
    except StopIteration:
        break
print(got[-1], num_alarms)  # torch itself may lose what comes as a handler raises
