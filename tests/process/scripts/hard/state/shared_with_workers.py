"""Values, queues, events, barriers and shared tensors go between the trainer and its workers."""

import multiprocessing as mp

import torch
from torch.utils.data import DataLoader, Dataset

context = mp.get_context("fork")


class Shares(Dataset):
    def __init__(self):
        self.value, self.array = context.Value("i", 0), context.Array("d", 4)
        self.queue, self.event, self.lock = context.SimpleQueue(), context.Event(), context.Lock()
        self.tensor = torch.zeros(8, dtype=torch.int64).share_memory_()

    def __len__(self):
        return 8

    def __getitem__(self, index):
        with self.lock, self.value.get_lock():
            self.value.value += index
        self.array[index % 4] += index
        self.queue.put(index)
        self.tensor[index] += 1
        return index, self.event.is_set()


for workers in (1, 2):
    dataset = Shares()
    dataset.event.set()
    for _ in range(2):
        print(list(DataLoader(dataset, None, num_workers=workers)))
    print(
        dataset.value.value, sorted(dataset.queue.get() for _ in range(16)), dataset.tensor.tolist()
    )
    print(sum(dataset.array))
