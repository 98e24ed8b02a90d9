"""Iterates no loader."""

import torch

torch.rand(1)
