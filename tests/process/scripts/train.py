"""A training script in all its ways to be in the middle of something, and to end.

usage: train.py END [SITUATION ...]
"""

import os
import signal
import subprocess
import sys
import threading

import torch
from torch.utils.data import DataLoader, Dataset


def tell(line):
    if os.environ["TELL_FD"]:  # empty where a launcher in between closes what it inherits
        os.write(int(os.environ["TELL_FD"]), f"{line}\n".encode())


END, SITUATIONS = sys.argv[1], set(sys.argv[2:])
NEVER = os.pipe()  # nobody writes


class Noise(Dataset):
    child = None

    def __len__(self):
        return 64

    def __getitem__(self, index):
        if "subprocess" in SITUATIONS and self.child is None:
            self.child = users_process()
        if "stuck" in SITUATIONS and index >= 16:
            tell("stuck")
            os.read(NEVER[0], 1)
        size = 50_000 if "large" in SITUATIONS else 5
        return torch.rand(size), index


def users_process():
    """A process of the user's own, which may stay. It inherits all that can be inherited."""
    mine = os.environ | {"STOKERS_TEST_MARK": "of the user"}
    child = subprocess.Popen(["sleep", "600"], env=mine, close_fds=False)
    tell(f"users {child.pid}")
    return child


def users_fork():
    pid = os.fork()
    if pid == 0:
        while True:
            signal.pause()
    tell(f"users {pid}")


def wait():
    if "in-next" in SITUATIONS:
        for _ in iterator:
            pass
    while True:
        signal.pause()


def fail():
    raise ValueError("in the step")


ENDINGS = {
    "end": lambda: None,
    "wait": wait,
    "sys.exit": lambda: sys.exit(5),
    "sys.exit text": lambda: sys.exit("a last word"),
    "raise": fail,
    "os._exit": lambda: os._exit(6),
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "abort": os.abort,
    "exec": lambda: os.execvp("true", ["true"]),
}

loader = DataLoader(
    Noise(), 4, num_workers=2, persistent_workers="persistent" in SITUATIONS, prefetch_factor=2
)
kept = []


def first_batches():
    global iterator
    iterator = iter(loader)
    for _ in range(4):
        kept.append(next(iterator))


if "thread" in SITUATIONS:
    thread = threading.Thread(target=first_batches)
    thread.start()
    thread.join()
else:
    first_batches()
if "fork" in SITUATIONS:
    users_fork()
if "trainer-subprocess" in SITUATIONS:
    users_process()
if "second" in SITUATIONS:
    second = iter(DataLoader(Noise(), 4, num_workers=2))
    next(second)
tell("in the loop")
ENDINGS[END]()
for _ in iterator:
    pass
print("the end")
