"""A subreaper waits until it has no child left, as an init process of a container does."""

import ctypes
import os
import warnings

from torch.utils.data import DataLoader

# Whether threads of torch's queues still live at os.fork() is of the moment.
warnings.simplefilter("ignore", DeprecationWarning)
PR_SET_CHILD_SUBREAPER = 36
print(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
for _ in range(2):
    print([b.tolist() for b in DataLoader(range(6), 2, num_workers=2)])
    child = os.fork()
    if not child:
        if not os.fork():
            os._exit(9)  # an orphan: it becomes the subreaper's
        os._exit(8)
    ended = set()
    while True:
        try:
            ended.add(os.waitstatus_to_exitcode(os.wait()[1]))
        except ChildProcessError:
            break
    print(sorted(ended & {8, 9}))
