"""Batches that are false, or look like the end of something: 0, "", (), StopIteration, errors."""

from torch.utils.data import DataLoader

ODD = [False, 0, "", (), {}, [], b"", Ellipsis, NotImplemented, StopIteration, StopIteration(3)]
ODD += [ValueError("a value, not raised"), 0.0, float("nan"), set(), KeyError, (None,), Exception()]
for workers in (0, 1, 2):
    loader = DataLoader(range(len(ODD)), 1, num_workers=workers, collate_fn=lambda s: ODD[s[0]])
    print([repr(batch) for batch in loader])
