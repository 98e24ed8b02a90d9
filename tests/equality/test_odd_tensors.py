"""Tensors of every layout and kind arrive as from torch's own workers, or with the same error."""

from functools import partial
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from stoker.clock import thread_cpu_s
from stoker.intercept import run as this_run
from tests.equality.sides import both, installed

# Nested and compressed tensors warn that they are prototypes.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


class Sub(torch.Tensor):
    """A subclass of the script's."""


def nested(layout: torch.layout, scale: int = 1, **how: Any) -> torch.Tensor:
    parts = [torch.randn(2 * scale, 3), torch.randn(4 * scale, 3)]
    return torch.nested.nested_tensor(parts, layout=layout, **how)


def complexes(num: int) -> torch.Tensor:
    return torch.randn(num, dtype=torch.complex64)


def shared() -> list[torch.Tensor]:
    whole = torch.arange(100_000.0)
    return [whole[:10], whole[5:50_000], whole]


def with_gradient() -> torch.Tensor:
    leaf = torch.randn(3, requires_grad=True)
    leaf.grad = torch.ones(3)
    return leaf


def inferred() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(3) + 1


LARGE = 40_000
KINDS: dict[str, Any] = {
    "nested": lambda: nested(torch.strided),
    "large nested": lambda: nested(torch.strided, LARGE),
    "transposed nested": lambda: nested(torch.strided).transpose(1, 2),
    "two nested": lambda: [nested(torch.strided)] * 2,
    "jagged": lambda: nested(torch.jagged),
    "large jagged": lambda: nested(torch.jagged, LARGE),
    "jagged with gradients": lambda: nested(torch.jagged, requires_grad=True),
    "COO": lambda: torch.eye(4).to_sparse(),
    "not coalesced": lambda: torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (3, 3)),
    "CSR": lambda: torch.eye(4).to_sparse_csr(),
    "CSC": lambda: torch.eye(4).to_sparse_csc(),
    "BSR": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "BSC": lambda: torch.eye(4).to_sparse_bsc((2, 2)),
    "conjugate": lambda: complexes(3).conj(),
    "large conjugate": lambda: complexes(LARGE).conj(),
    "negative": lambda: complexes(3).conj().imag,
    "large negative": lambda: complexes(LARGE).conj().imag,
    "meta": lambda: torch.empty(3, device="meta"),
    "subclass": lambda: torch.arange(6.0).as_subclass(Sub),
    "leaf": lambda: torch.randn(3, requires_grad=True),
    "large leaf": lambda: torch.randn(LARGE, requires_grad=True),
    "gradient": with_gradient,
    "parameter": lambda: torch.nn.Parameter(torch.randn(3)),
    "parameter without gradient": lambda: torch.nn.Parameter(torch.ones(3), requires_grad=False),
    "buffer": lambda: torch.nn.Buffer(torch.randn(3)),
    "uninitialized": torch.nn.UninitializedParameter,
    "no elements": lambda: torch.empty(0, 5),
    "scalar": lambda: torch.tensor(3),
    "expanded": lambda: torch.tensor([1.0, 2.0])[:, None].expand(2, 5),
    "large expanded": lambda: torch.randn(LARGE)[:, None].expand(LARGE, 3),
    "inference": inferred,
    "shared": shared,
    "8 bits": lambda: torch.ones(3).to(torch.float8_e4m3fn),
    "16 bits": lambda: torch.arange(3).to(torch.uint16),
    "transposed": lambda: torch.arange(60_000.0).view(200, 300).t(),
    "channels last": lambda: torch.randn(2, 3, 64, 64).to(memory_format=torch.channels_last),
    "packed": lambda: torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)]),
    "storage": lambda: torch.arange(3.0).untyped_storage(),
}


class Kinds(Dataset):
    def __len__(self) -> int:
        return len(KINDS)

    def __getitem__(self, index: int) -> Any:
        torch.manual_seed(index)
        return list(KINDS.values())[index]()


def asked(question: Any) -> str:
    try:
        return str(question() if callable(question) else question)
    except Exception as error:
        return type(error).__name__


def answer(value: torch.Tensor, name: str) -> Any:
    attribute = getattr(value, name)
    return attribute() if callable(attribute) else attribute


ASKED = (
    "dtype", "layout", "device", "requires_grad", "is_leaf", "is_conj", "is_neg", "is_inference",
    "is_coalesced", "stride", "storage_offset", "grad",
)  # fmt: skip


def told(value: Any) -> Any:
    """All but the number of a jagged dimension, which counts such tensors of this process, and
    whether the memory is shared."""
    if isinstance(value, list):
        storages = {part.untyped_storage().data_ptr() for part in value if not part.is_nested}
        return [told(part) for part in value], len(storages)
    if not isinstance(value, torch.Tensor):
        return type(value).__name__, repr(value)
    is_nested = value.is_nested
    names = ASKED if value.layout is not torch.jagged else ASKED[:-3]
    words = [asked(lambda name=name: answer(value, name)) for name in names]
    values = [part.tolist() for part in value.unbind()] if is_nested else asked(value.tolist)
    size = "nested" if is_nested else asked(value.size)
    nbytes = asked(lambda: value.untyped_storage().nbytes())
    return type(value).__name__, words, size, nbytes, values


def test_tensors_of_every_kind_arrive_as_from_torch():
    def make(num_workers: int) -> DataLoader:
        return DataLoader(Kinds(), None, collate_fn=lambda x: x, num_workers=num_workers)

    def run(loader: DataLoader) -> Any:
        return [(name, told(x)) for name, x in zip(KINDS, loader, strict=True)]

    plain, _ = both(make, run, workers=1)
    assert len(plain.digests) == len(KINDS)


def test_a_tensor_that_torch_refuses_to_send_is_refused_with_torchs_words():
    """torch prints them in its worker, and waits for ever."""
    refused = (lambda: torch.randn(3, requires_grad=True) * 2,
               lambda: nested(torch.strided, requires_grad=True))  # fmt: skip
    for make in refused:
        with installed():
            loader = DataLoader([0], None, collate_fn=lambda _, make=make: make(), num_workers=1)
            with pytest.raises(RuntimeError, match="refusing to serialize non-leaf tensor"):
                next(iter(loader))


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_tensors_are_made_ahead_without_workers(layout):
    class Slow(Dataset):
        def __len__(self) -> int:
            return 24

        def __getitem__(self, index: int) -> torch.Tensor:
            end_s = thread_cpu_s() + 0.03
            while thread_cpu_s() < end_s:
                pass
            parts = [torch.full((2, 3), float(index)), torch.ones(index + 1, 3)]
            return torch.nested.nested_tensor(parts, layout=layout)

    def make(num_workers: int) -> DataLoader:
        return DataLoader(Slow(), None, collate_fn=lambda x: x, num_workers=num_workers)

    def run(loader: DataLoader) -> Any:
        iterator = iter(loader)
        yield from map(told, iterator)
        if getattr(iterator, "_driver", None) is not None:
            reasons.extend(record.reasons for record in this_run.recorder()._loaders)

    reasons: list[list[str]] = []
    both(partial(make), run, workers=0)
    assert reasons == [[]], "nothing was made ahead"
