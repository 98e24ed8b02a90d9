"""What a worker has for signal handlers and masks, and what is left of them in the trainer."""

import signal

from torch.utils.data import DataLoader, Dataset


def handler(number, frame):
    pass


NAMES = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGALRM", "SIGPIPE", "SIGHUP")


def handlers():
    found = (signal.getsignal(getattr(signal, name)) for name in NAMES)
    return [getattr(f, "name", getattr(f, "__name__", str(f))) for f in found]


class Handlers(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return handlers(), sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))


signal.signal(signal.SIGUSR1, handler)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
for _ in range(2):
    print(list(DataLoader(Handlers(), None, num_workers=2)))
print(handlers(), sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
