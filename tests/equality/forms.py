"""What samples and batches look like: one entry per kind of nesting, dtype and memory."""

import collections
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import PIL.Image
import torch
from torch import Tensor
from torch.utils.data import default_collate

with warnings.catch_warnings(action="ignore"):  # torch says once that these are beta; said now
    torch.eye(2).to_sparse_csr()
    torch.sparse_coo_tensor([[0]], [1.0], (1,))


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Batch:
    x: Tensor
    names: list[str]
    missing: None = None


class Marked(torch.Tensor):
    """A tensor subclass, as torchvision's tv_tensors are."""


class Bag:
    """A batch of the user's own class, with the hook that DataLoader documents."""

    def __init__(self, samples: list[Any]) -> None:
        self.x = torch.stack([x for x, _ in samples])
        self.indices = {index for _, index in samples}

    def pin_memory(self) -> "Bag":
        return self


@dataclass(frozen=True)
class Form:
    sample: Callable[[int, Tensor], Any]  # (index, values F) -> sample
    collate: Callable[[list[Any]], Any] = default_collate


def image(index: int, x: Tensor) -> PIL.Image.Image:
    pixels = (x.numpy() * 1000).astype(np.int64).astype(np.uint8)
    picture = PIL.Image.fromarray(np.resize(pixels, (4, 5)))
    return (picture.convert("RGB"), picture, picture.convert("P"))[index % 3]


def views(samples: list[Tensor]) -> dict[str, Tensor]:
    x = torch.stack(samples)
    return {"all": x, "head": x[:1], "columns": x.t(), "last": x.view(-1)[-1]}


def arrays(samples: list[Tensor]) -> dict[str, Any]:
    x = torch.stack(samples).numpy()
    return {
        "c": x,
        "fortran": np.asfortranarray(x),
        "strided": x[:, ::2],
        "structured": np.array([(1, 2.0)], dtype=[("a", "i2"), ("b", "f8")]),
        "objects": np.array(["a", None, 3], dtype=object),
        "times": np.array(["2020-01-01"], dtype="datetime64[D]"),
        "scalar": x.dtype.type(x.sum()),
    }


def large(x: Tensor, *shape: int) -> Tensor:
    return torch.from_numpy(np.resize(x.numpy(), shape))


FORMS = {
    "tensor": Form(lambda i, x: x),
    "pair": Form(lambda i, x: (x, i)),
    "dict": Form(lambda i, x: {"x": x, "deep": {"i": i, "w": float(x[0])}, "name": f"é{i}"}),
    "namedtuple": Form(lambda i, x: Point(x, Point(i, [x[:1], x[1:2]]))),
    "dataclass": Form(
        lambda i, x: (x, str(i)), lambda s: Batch(torch.stack([x for x, _ in s]), [n for _, n in s])
    ),
    "strings": Form(lambda i, x: ["text" * i, b"bytes", x]),
    "none": Form(lambda i, x: x, lambda s: (torch.stack(s), None, [], {}, ())),
    "pil": Form(image, list),
    "sparse": Form(
        lambda i, x: x.round().diag().to_sparse(),
        lambda s: (torch.stack(s), s[0].coalesce(), [x.to_dense().to_sparse_csr() for x in s]),
    ),
    "zero-size": Form(lambda i, x: (torch.empty(0, 3), x[:0], torch.empty(2, 0).long())),
    "0-d": Form(lambda i, x: (x[0], torch.tensor(i)), lambda s: [*s, x0d(s)]),
    "bool": Form(lambda i, x: (x > 0.5, bool(i % 2))),
    "narrow": Form(lambda i, x: (x.bfloat16(), x.half(), x.to(torch.float8_e5m2), x.char())),
    "wide": Form(lambda i, x: (x.double(), torch.complex(x, -x), x.long(), x.int())),
    "unsigned": Form(lambda i, x: (x.byte(), (x * 9).to(torch.uint16), x.to(torch.uint64))),
    "non-contiguous": Form(lambda i, x: x, lambda s: (torch.stack(s).t(), torch.stack(s)[:, ::2])),
    "expanded": Form(lambda i, x: x, lambda s: s[0].expand(3, -1)),
    "conjugate": Form(lambda i, x: x, lambda s: torch.complex(*torch.stack([s[0]] * 2)).conj()),
    "channels-last": Form(
        lambda i, x: large(x, 3, 8, 8),
        lambda s: torch.stack(s).to(memory_format=torch.channels_last),
    ),
    "shared storage": Form(lambda i, x: x, views),
    "shared large storage": Form(lambda i, x: large(x, 3, 96, 96).view(-1), views),
    "numpy": Form(lambda i, x: (x.numpy(), np.float32(x[0]), np.arange(i % 2 + 1)[:1])),
    "arrays": Form(lambda i, x: x, arrays),
    "large arrays": Form(lambda i, x: large(x, 3, 96, 96), arrays),
    "subclass": Form(lambda i, x: x, lambda s: torch.stack(s).as_subclass(Marked)),
    "parameter": Form(lambda i, x: x, lambda s: torch.nn.Parameter(torch.stack(s))),
    "own class": Form(lambda i, x: (x, i), Bag),
    "packed": Form(
        lambda i, x: x[: 1 + i % 3],
        lambda s: torch.nn.utils.rnn.pack_sequence(s, enforce_sorted=False),
    ),
    "ordered": Form(lambda i, x: collections.OrderedDict(b=x, a=i)),
    "large": Form(lambda i, x: (large(x, 3, 96, 96), i)),
    "large and small": Form(lambda i, x: {"x": large(x, 3, 96, 96), "y": [x, i, str(i)]}),
    "just at the limit": Form(lambda i, x: large(x, 1 << 14), lambda s: (*s, s[0][:-1].clone())),
    "a MB each": Form(lambda i, x: large(x, 1 << 18)),
    "many": Form(lambda i, x: x, lambda s: [x.clone() for x in s for _ in range(9)]),
}  # fmt: skip


def x0d(samples: list[Any]) -> Tensor:
    return sum(x for x, _ in samples)
