"""The script stops a worker and lets it go on, and sees that it has ended after the loop."""

import os
import signal

from torch.utils.data import DataLoader, Dataset


class Pids(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return os.getpid()


iterator = iter(DataLoader(Pids(), 1, num_workers=2))
pids = [worker.pid for worker in iterator._workers]
for pid in pids:
    os.kill(pid, signal.SIGSTOP)
    os.kill(pid, signal.SIGCONT)
print([pids.index(batch.item()) for batch in iterator])
workers = iterator._workers
del iterator
for worker in workers:
    worker.join(30)
print([(worker.is_alive(), worker.exitcode) for worker in workers])
