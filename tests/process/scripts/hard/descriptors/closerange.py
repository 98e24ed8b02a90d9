"""The script closes every descriptor it did not open, between epochs, as daemons do."""
# stderr by chance: threads of torch's queues may find theirs closed

import gc
import os
import threading

from torch.utils.data import DataLoader

for workers in (0, 2):
    loader = DataLoader(range(8), 2, num_workers=workers)
    for _ in range(3):
        print([b.tolist() for b in loader])
        gc.collect()
        for thread in threading.enumerate():
            if thread.name == "QueueFeederThread":
                thread.join()  # it closes a number that may be the next epoch's by then
        os.closerange(3, 1024)
