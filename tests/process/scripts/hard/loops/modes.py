"""Loops in inference mode, without gradients, with autocast: what a batch is, and what a worker sees."""

import torch
from torch.utils.data import DataLoader, Dataset


class Modes(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        x = torch.ones(2, requires_grad=True) * 2
        flags = [
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.is_autocast_enabled("cpu"),
        ]
        return torch.tensor([*flags, x.requires_grad, x.is_inference()])


for workers in (0, 2):
    for mode in (
        torch.inference_mode(),
        torch.no_grad(),
        torch.autocast("cpu"),
        torch.enable_grad(),
    ):
        with mode:
            for batch in DataLoader(Modes(), 2, num_workers=workers):
                print(batch.tolist(), batch.is_inference(), batch.requires_grad)
            weight = torch.ones(5, requires_grad=True)
            print((batch.float() @ weight).requires_grad)
