"""Trains on samples of which one hangs in C code for good; after two seconds, not sixty, it is to be said where.

usage: hangs.py HOW    HOW: lock (waits without the interpreter's lock), gil (keeps it), library (inside installed code)
"""

import ctypes
import multiprocessing
import sys
import threading

from torch.utils.data import DataLoader, Dataset

from stoker.loaders.driver import driver


def decode(how):
    if how == "lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    elif how == "gil":
        mutex = ctypes.create_string_buffer(64)
        for _ in range(2):
            ctypes.PyDLL(None).pthread_mutex_lock(mutex)
    else:
        multiprocessing.Event().wait()


class Files(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index == 9:
            decode(sys.argv[1])
        return index


for _ in DataLoader(Files(), batch_size=2, num_workers=2):
    driver.QUIET_S = 2.0
