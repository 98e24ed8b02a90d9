"""Hides a folder from hosts, as if they ran on a machine that lacks it: an empty file system lies over it."""

import ctypes
import os
import sys

HIDDEN = os.environ.get("HIDDEN_FROM_HOSTS")

if HIDDEN and "stoker.remote.host.start" in sys.orig_argv:
    _libc = ctypes.CDLL(None, use_errno=True)
    new_namespace, recursive, private = 0x00020000, 0x4000, 1 << 18
    _refused = (
        _libc.unshare(new_namespace)
        or _libc.mount(b"none", b"/", None, recursive | private, None)
        or _libc.mount(b"none", HIDDEN.encode(), b"tmpfs", 0, None)
    )
    if _refused:
        sys.exit(f"cannot hide {HIDDEN}: {os.strerror(ctypes.get_errno())}")
