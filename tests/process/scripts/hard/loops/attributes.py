"""Attributes of loaders and iterators that public code sets, reads and may not set."""

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter

for workers in (0, 2):
    loader = DataLoader(range(6), 2, num_workers=workers)
    for name in ("batch_size", "sampler", "drop_last", "dataset", "persistent_workers"):
        try:
            setattr(loader, name, 1)
        except Exception as error:
            print(type(error).__name__, error)
    loader.mine, loader.timeout = 5, 60 * workers
    iterator = iter(loader)
    print(
        isinstance(iterator, _BaseDataLoaderIter),
        isinstance(iterator, _MultiProcessingDataLoaderIter),
    )
    print(iterator._num_workers, iterator._timeout, iterator._drop_last, iterator._num_yielded)
    print([w.is_alive() for w in getattr(iterator, "_workers", [])], next(iterator).tolist())
    print(
        iterator._num_yielded, iterator._IterableDataset_len_called, loader.mine, str(loader)[:50]
    )
    print([w.daemon for w in getattr(iterator, "_workers", [])], sorted(vars(loader)))
