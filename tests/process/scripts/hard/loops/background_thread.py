"""A thread consumes the loader into a queue; the main thread trains and stops it in mid-epoch."""

import queue
import threading

from torch.utils.data import DataLoader

for workers in (0, 2):
    full, stop = queue.Queue(2), threading.Event()

    def fill(loader, full=full, stop=stop):
        for batch in loader:
            full.put(batch)
            if stop.is_set():
                break
        full.put(None)

    loader = DataLoader(range(40), 2, num_workers=workers)
    thread = threading.Thread(target=fill, args=(loader,))
    thread.start()
    print([full.get().tolist() for _ in range(5)])
    stop.set()
    while full.get() is not None:
        pass
    thread.join()
    print(thread.is_alive())  # torch's own thread may live a moment longer
