"""Every batch is None, with persistent workers, for two epochs: an end must not be seen in any."""

from torch.utils.data import DataLoader

for persistent in (False, True):
    loader = DataLoader(
        range(9), 2, num_workers=2, collate_fn=lambda s: None, persistent_workers=persistent
    )
    for _ in range(2):
        iterator = iter(loader)
        print([next(iterator) for _ in range(len(loader))], next(iterator, "end"))
