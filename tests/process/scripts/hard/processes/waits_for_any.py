"""The script waits for any child in a loop, as supervisors do: only its own may come back."""

import os

from torch.utils.data import DataLoader

for workers in (0, 2):
    children = {}
    for code in (3, 5):
        pid = os.fork()
        if not pid:
            os._exit(code)
        children[pid] = code
    print([b.tolist() for b in DataLoader(range(6), 2, num_workers=workers)])
    while children:
        pid, status = os.wait()
        print(children.pop(pid) == os.waitstatus_to_exitcode(status))
    try:
        print(os.wait())
    except ChildProcessError as error:
        print(error)
