"""A timer interrupts every system call for as long as the loop runs."""

import signal

from torch.utils.data import DataLoader

ticks = []
signal.signal(signal.SIGALRM, lambda number, frame: ticks.append(number))
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
for persistent in (False, True):
    loader = DataLoader(range(60), 2, num_workers=2, persistent_workers=persistent)
    for _ in range(2):
        print(sum(b.sum().item() for b in loader))
del loader
signal.setitimer(signal.ITIMER_REAL, 0)
print(len(ticks) > 5)
