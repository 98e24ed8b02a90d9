"""Impure: threads of a sample append to one list as they come."""

import threading

from torch.utils.data import DataLoader, Dataset


class Raced(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        order, start = [], threading.Barrier(4)

        def append(name):
            start.wait()
            for _ in range(50):
                order.append(name)
                threading.Event().wait(1e-5)  # others may go first

        threads = [threading.Thread(target=append, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return order


for _ in DataLoader(Raced(), batch_size=4, num_workers=2):
    pass
