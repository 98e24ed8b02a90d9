"""Tensor subclasses with attributes, parameters, and tensors that require gradients."""

import torch
from torch.utils.data import DataLoader


class Named(torch.Tensor):
    pass


def collate(samples):
    x = (torch.ones(2) * samples[0]).as_subclass(Named)
    x.label = f"of {samples[0]}"
    leaf = torch.ones(2, requires_grad=True)
    return [x, torch.nn.Parameter(torch.ones(1)), leaf, torch.nn.Buffer(torch.zeros(1))]


for workers in (0, 2):
    for batch in DataLoader(range(4), 2, num_workers=workers, collate_fn=collate):
        print(
            [
                (type(x).__name__, getattr(x, "label", None), x.requires_grad, x.is_leaf)
                for x in batch
            ]
        )
