"""Sparse, complex, quantized, boolean, half, empty, zero-dimensional and meta tensors."""

import warnings

import torch
from torch.utils.data import DataLoader

warnings.simplefilter("ignore")
MAKE = {
    "complex": lambda i: torch.tensor([1j * i, 2.0]),
    "conj": lambda i: torch.tensor([1j * i, 2.0]).conj(),
    "bool": lambda i: torch.tensor([True, i > 1]),
    "bf16": lambda i: torch.arange(3, dtype=torch.bfloat16) + i,
    "empty": lambda i: torch.empty(0, 3),
    "scalar": lambda i: torch.tensor(i),
    "quantized": lambda i: torch.quantize_per_tensor(torch.arange(3.0) + i, 0.5, 1, torch.quint8),
    "coo": lambda i: torch.eye(3).mul(i).to_sparse(),
    "uint16": lambda i: torch.tensor([i, 65535], dtype=torch.uint16),
    "float8": lambda i: torch.ones(2).to(torch.float8_e4m3fn).view(torch.uint8),
    "expanded": lambda i: torch.tensor([i]).expand(4),
}
for workers in (0, 1):
    loader = DataLoader(
        range(3), 1, num_workers=workers, collate_fn=lambda s: {k: m(s[0]) for k, m in MAKE.items()}
    )
    for batch in loader:
        for name, x in batch.items():
            print(
                name,
                x.dtype,
                tuple(x.shape),
                x.layout,
                x.is_conj(),
                x.to_dense().tolist()
                if x.is_sparse
                else x.int_repr().tolist()
                if x.is_quantized
                else x.tolist(),
            )
