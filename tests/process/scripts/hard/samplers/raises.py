"""A sampler raises in mid-epoch: which batches still come, and what the error looks like."""

from torch.utils.data import DataLoader


class Breaks:
    def __iter__(self):
        yield from range(5)
        raise LookupError("no more of these")


for workers in (0, 1, 2):
    got = []
    try:
        iterator = iter(DataLoader(range(9), 1, sampler=Breaks(), num_workers=workers))
        for batch in iterator:
            got.append(batch.item())
    except LookupError as error:
        print(type(error).__name__, error, got, error.__cause__, getattr(error, "__notes__", None))
