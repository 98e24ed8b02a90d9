"""Signals are blocked in the trainer, as under sigwait() servers, and one waits to be taken."""

import signal

from torch.utils.data import DataLoader

signal.pthread_sigmask(
    signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGHUP]
)
signal.raise_signal(signal.SIGUSR1)
for persistent in (False, True):
    loader = DataLoader(range(8), 2, num_workers=2, persistent_workers=persistent)
    for _ in range(2):
        print([b.tolist() for b in loader])
print(signal.sigwait([signal.SIGUSR1, signal.SIGUSR2]))
