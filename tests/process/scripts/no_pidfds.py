"""A loader in a sandbox whose filter refuses pidfd_open, as Docker's did before version 20.10."""

import ctypes
import os
import signal
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
PIDFD_OPEN = 434  # on every architecture
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | 1  # EPERM


def refuse_pidfds() -> None:
    """Source: linux/filter.h, linux/seccomp.h."""
    steps = [
        struct.pack("HBBI", 0x20, 0, 0, 0),  # load the system call's number
        struct.pack("HBBI", 0x15, 0, 1, PIDFD_OPEN),  # another one: skip a step
        struct.pack("HBBI", 0x06, 0, 0, REFUSE),
        struct.pack("HBBI", 0x06, 0, 0, ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(steps))
    program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in [(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program)]:
        if libc.prctl(*call):
            sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")


refuse_pidfds()
try:
    os.pidfd_open(os.getpid())
    sys.exit("not refused")
except PermissionError:
    pass

import torch  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

iterator = iter(DataLoader(torch.arange(64), 4, num_workers=2))
batches = [next(iterator)]
if "--kill" in sys.argv:
    os.kill(iterator._workers[1].pid, signal.SIGKILL)
print(torch.stack([*batches, *iterator]).tolist())
