"""The main thread ends; one thread goes on to load, and a daemonic one is in the middle of it."""

import threading

from torch.utils.data import DataLoader

begun, ended = threading.Event(), threading.Event()


def forever():
    for _ in DataLoader(range(8), 2, num_workers=1, persistent_workers=True):
        begun.set()
        threading.Event().wait()


def goes_on():
    ended.wait()
    for batch in DataLoader(range(6), 2, num_workers=0):
        print(batch.tolist(), flush=True)


threading.Thread(target=forever, daemon=True).start()
begun.wait()
threading.Thread(target=goes_on).start()
print("main ends", flush=True)
ended.set()
