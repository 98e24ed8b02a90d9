"""sys.excepthook, threading.excepthook and sys.unraisablehook are the script's, and are called."""
# ends: 1

import sys
import threading

from torch.utils.data import DataLoader, Dataset


class Fails(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        raise OSError(28, "No space left on device", f"file{index}")


def hook(kind, error, traceback):
    print("hook", kind.__name__, str(error).splitlines()[-1])


def loop(workers):
    next(iter(DataLoader(Fails(), 2, num_workers=workers)))


sys.excepthook = hook
threading.excepthook = lambda args: print("in a thread", args.exc_type.__name__)
thread = threading.Thread(target=loop, args=[0])
thread.start()
thread.join()
loop(2)
