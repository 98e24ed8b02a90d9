"""A seccomp filter refuses pidfd_open, as old container runtimes do."""

import ctypes
import errno
import os
import struct

from torch.utils.data import DataLoader

PIDFD_OPEN = 434
PROGRAM = b"".join(
    struct.pack("HBBI", *each)
    for each in (
        (0x20, 0, 0, 0),  # load the system call's number
        (0x15, 0, 1, PIDFD_OPEN),  # another one: skip the next
        (0x06, 0, 0, 0x00050000 | errno.EPERM),
        (0x06, 0, 0, 0x7FFF0000),  # allow
    )
)
libc = ctypes.CDLL(None, use_errno=True)
code = ctypes.create_string_buffer(PROGRAM, len(PROGRAM))
header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(code)))
print(libc.prctl(38, 1, 0, 0, 0), libc.prctl(22, 2, header, 0, 0))
try:
    os.pidfd_open(os.getpid())
except PermissionError as error:
    print(error)
for workers in (0, 2):
    for _ in range(2):
        print([b.tolist() for b in DataLoader(range(6), 2, num_workers=workers)])
