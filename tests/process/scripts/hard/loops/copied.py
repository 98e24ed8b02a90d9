"""Loaders are deep-copied and pickled, before, during and after iteration."""

import copy
import pickle

import torch
from torch.utils.data import DataLoader

torch.manual_seed(0)
for workers, persistent in ((0, False), (2, False), (2, True)):
    loader = DataLoader(
        range(6), 2, shuffle=True, num_workers=workers, persistent_workers=persistent,
        generator=torch.Generator().manual_seed(1),
    )  # fmt: skip
    twins = [copy.copy(loader), copy.deepcopy(loader)]
    try:
        twins.append(pickle.loads(pickle.dumps(loader)))
    except TypeError as error:
        print(error)
    for twin in (loader, *twins):
        print([b.tolist() for b in twin])
    try:
        print(type(copy.deepcopy(loader)).__name__)
    except Exception as error:
        print(type(error).__name__)
