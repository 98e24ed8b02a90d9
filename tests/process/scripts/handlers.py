"""Handlers that a script sets are its workers' too, as after any fork."""

import os
import select
import signal
import sys
import time

import torch
from torch.utils.data import DataLoader

TRAINER = os.getpid()


def tell(line):
    os.write(int(os.environ["TELL_FD"]), f"{line}\n".encode())


def handler(number, frame):
    tell(f"handled {number} {'trainer' if os.getpid() == TRAINER else 'worker'}")
    if number == signal.SIGTERM and os.getpid() == TRAINER:
        sys.exit(7)


signal.signal(signal.SIGUSR1, handler)
signal.signal(signal.SIGTERM, handler)
iterator = iter(DataLoader(torch.rand(64, 3), 4, num_workers=2))
next(iterator), next(iterator)  # one of each worker: both have set up their own handlers
# Python forgets a signal that comes just before a read(2) until that returns; not with this pipe.
heard, wakeup = os.pipe2(os.O_NONBLOCK)
signal.set_wakeup_fd(wakeup)
tell("in the loop")
while sys.stdin not in select.select([sys.stdin, heard], [], [])[0]:
    os.read(heard, 100)
sys.stdin.readline()
print(len(list(iterator)), time.time() > 0)
