"""The default collate function fails on unequal shapes and kinds; and a custom one raises."""

import torch
from torch.utils.data import DataLoader


def custom(samples):
    raise ZeroDivisionError(samples)


DATA = {"shapes": [torch.ones(2), torch.ones(3)], "kinds": [1, "a"]}
for workers in (0, 1):
    for name, data in DATA.items():
        try:
            print(list(DataLoader(data, 2, num_workers=workers)))
        except Exception as error:
            print(name, type(error).__name__, str(error).splitlines()[-1])
    try:
        next(iter(DataLoader(range(4), 2, num_workers=workers, collate_fn=custom)))
    except ZeroDivisionError as error:
        print(str(error).splitlines()[-1])
