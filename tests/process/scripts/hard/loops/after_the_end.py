"""next() after the end, twice; len of the iterator; a default; a loop over a finished iterator."""

from torch.utils.data import DataLoader

for workers, persistent in ((0, False), (2, False), (2, True)):
    iterator = iter(DataLoader(range(5), 2, num_workers=workers, persistent_workers=persistent))
    print(len(iterator), [b.tolist() for b in iterator], len(iterator))
    for _ in range(2):
        try:
            next(iterator)
        except Exception as error:
            print(type(error).__name__, error.args)
    print(next(iterator, "default"), iter(iterator) is iterator)
