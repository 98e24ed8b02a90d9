"""multiprocessing.Process, a daemonic one too, iterates a loader and sends what it got."""

import multiprocessing as mp

from torch.utils.data import DataLoader


def load(workers, queue):
    try:
        queue.put([b.tolist() for b in DataLoader(range(6), 2, num_workers=workers)])
    except AssertionError as error:
        queue.put(str(error))


if __name__ == "__main__":
    context = mp.get_context("fork")
    queue = context.SimpleQueue()
    for workers in (0, 2):
        for daemon in (False, True):
            process = context.Process(target=load, args=(workers, queue), daemon=daemon)
            process.start()
            print(workers, daemon, queue.get())
            process.join()
            print(process.exitcode, mp.active_children())
    print([b.tolist() for b in DataLoader(range(6), 2, num_workers=2)], mp.active_children())
