"""DataPipes shuffle, shard and batch, with the seeds that torch gives them."""

import torch
from torch.utils.data import DataLoader, IterDataPipe, MapDataPipe, functional_datapipe
from torch.utils.data.datapipes.iter import IterableWrapper

pipe = IterableWrapper(range(12)).shuffle().sharding_filter().map(lambda x: x * 10)


@functional_datapipe("plus_one_of_ours")
class PlusOne(IterDataPipe):
    def __init__(self, source):
        self.source = source

    def __iter__(self):
        for x in self.source:
            yield x + 1


class Squares(MapDataPipe):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        return index**2


for workers in (0, 2):
    torch.manual_seed(2)
    for data in (pipe, pipe.plus_one_of_ours()):
        for shuffle in (None, True, False):
            loader = DataLoader(data, 3, shuffle=shuffle, num_workers=workers)
            print([b.tolist() for b in loader])
    print([b.tolist() for b in DataLoader(Squares(), 2, num_workers=workers)], torch.rand(1).item())
