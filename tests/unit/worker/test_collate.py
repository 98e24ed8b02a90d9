"""What default_collate gives or raises is torch's, whichever of the two copies the samples."""

import warnings
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils.data import _utils
from torch.utils.data._utils import collate as torch_collate

from stoker.wire.stream_copy import LIBRARY, stream_copy
from stoker.worker import collate
from tests.equality.forms import Marked

ORIGINAL = torch_collate.collate_tensor_fn
CALLS = []


def copy_and_tell(destination, sources, nbytes):
    CALLS.append(nbytes)
    stream_copy(destination, sources, nbytes)


@pytest.fixture
def worker(monkeypatch):
    """This process looks like a worker to torch's collate, and forgets it afterwards."""
    info = _utils.worker.WorkerInfo(id=0, num_workers=1, seed=0, dataset=None)
    monkeypatch.setattr(_utils.worker, "_worker_info", info)
    monkeypatch.setitem(torch_collate.default_collate_fn_map, torch.Tensor, ORIGINAL)


@pytest.fixture
def faster(worker, monkeypatch):
    """Our function, with small samples large enough for it."""
    if stream_copy is None:
        pytest.skip(f"{LIBRARY.name} was not built here (no C compiler?)")
    monkeypatch.setattr(collate, "LARGE_NBYTES", 1)
    monkeypatch.setattr(collate, "SAMPLE_NBYTES", 1)
    monkeypatch.setattr(collate, "STREAM_NBYTES", 1)
    CALLS.clear()
    return collate.faster(ORIGINAL, copy_and_tell)


def outcome(function, batch):
    """All that a caller can tell of a result, or of an error."""
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            x = function(batch, collate_fn_map=torch_collate.default_collate_fn_map)
    except Exception as error:
        return type(error), str(error)
    values = b""
    if x.device.type == "cpu":
        values = x.resolve_neg().resolve_conj().contiguous().view(-1).view(torch.uint8).numpy()
    return (
        type(x), x.dtype, x.shape, x.stride(), x.storage_offset(), x.device, x.layout,
        x.requires_grad, x.is_inference(), x.is_leaf, x.is_shared(), x.is_conj(), x.is_neg(),
        x.untyped_storage().nbytes(), bytes(values), [str(w.message) for w in said],
    )  # fmt: skip


def some(*shape, dtype=torch.float32, num=3):
    return [(torch.rand(shape) * 100).to(dtype) for _ in range(num)]


DTYPES = sorted(collate._DTYPES, key=str)
STREAMED = {
    "images": lambda: some(3, 5, 7),
    "a tuple of them": lambda: tuple(some(3, 5, 7)),
    "one sample": lambda: some(9, num=1),
    "the same tensor twice": lambda: some(9, num=1) * 2,
    "0-d": lambda: some(),
    "a size of one": lambda: some(1, 4, 1),
    "odd strides that do not matter": lambda: [torch.rand(1, 8).as_strided((1, 8), (3, 1))] * 2,
    "views of one storage": lambda: list(torch.rand(4, 6)),
    "at odd addresses": lambda: [torch.rand(9)[k : k + 5] for k in range(4)],
    "from numpy": lambda: [torch.from_numpy(np.arange(7.0)) for _ in range(2)],
    "not a number": lambda: [torch.tensor([float("nan"), -0.0]), torch.tensor([1.0, np.inf])],
    "bools of other bytes": lambda: [torch.tensor([0, 1, 2, 255], dtype=torch.uint8).view(torch.bool)],
    **{str(dtype): lambda dtype=dtype: some(33, dtype=dtype) for dtype in DTYPES},
}  # fmt: skip


def emptied():
    x = torch.rand(5)
    x.untyped_storage().resize_(0)
    return x


def quantized():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # said to be deprecated
        return torch.quantize_per_tensor(torch.rand(5), 0.1, 0, torch.qint8)


def nested():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # said to be a prototype
        return torch.nested.nested_tensor([torch.rand(2), torch.rand(3)])


class Odd(list):
    """A batch that is not quite a list."""


LEFT_TO_TORCH = {
    "nothing": list,
    "mixed shapes": lambda: [*some(5), *some(4)],
    "shapes of one size": lambda: [*some(2, 3), *some(3, 2)],
    "mixed dtypes": lambda: [*some(5), *some(5, dtype=torch.float64)],
    "dtypes of one size": lambda: [*some(5), *some(5, dtype=torch.int32)],
    "transposed": lambda: [x.t() for x in some(4, 5)],
    "channels last": lambda: [
        x.to(memory_format=torch.channels_last) for x in some(2, 3, 4, 5)
    ],
    "expanded": lambda: [x.expand(3, 4) for x in some(1, 4)],
    "every other": lambda: [x[::2] for x in some(8)],
    "the second is not contiguous": lambda: [*some(4, 4), torch.rand(4, 4).t()],
    "requires grad": lambda: [x.requires_grad_() for x in some(5)],
    "the last requires grad": lambda: [*some(5), torch.rand(5, requires_grad=True)],
    "a parameter": lambda: [*some(5), torch.nn.Parameter(torch.rand(5))],
    "a subclass": lambda: [x.as_subclass(Marked) for x in some(5)],
    "the last is a subclass": lambda: [*some(5), torch.rand(5).as_subclass(Marked)],
    "conjugate": lambda: [x.conj() for x in some(5, dtype=torch.complex64)],
    "the last is conjugate": lambda: [*some(5, dtype=torch.complex64), torch.full((5,), 1j).conj()],
    "negative by a bit": lambda: [*some(5), torch._neg_view(torch.rand(5))],
    "zeros without memory": lambda: [*some(5), torch._efficientzerotensor((5,))],
    "meta": lambda: [x.to("meta") for x in some(5)],
    "the last is meta": lambda: [*some(5), torch.empty(5, device="meta")],
    "sparse": lambda: [x.to_sparse() for x in some(5)],
    "the last is sparse": lambda: [*some(5), torch.rand(5).to_sparse()],
    "mkldnn": lambda: [*some(5), torch.rand(5).to_mkldnn()],
    "quantized": lambda: [quantized()],
    "the last is quantized": lambda: [*some(5), quantized()],
    "nested": lambda: [nested()] * 2,
    "the last is nested": lambda: [*some(2, 2), nested()],
    "zero size": lambda: some(3, 0),
    "numbers": lambda: [*some(5), 3.0],
    "nones": lambda: [*some(5), None],
    "arrays": lambda: [*some(5), np.zeros(5, np.float32)],
    "another sequence": lambda: Odd(some(5)),
    "a rare dtype": lambda: [torch.arange(5).to(torch.uint16)] * 2,
}  # fmt: skip


@pytest.mark.parametrize("make", STREAMED.values(), ids=STREAMED)
def test_samples_that_are_alike_are_streamed_and_the_batch_is_torchs(faster, make):
    batch = make()
    assert outcome(faster, batch) == outcome(ORIGINAL, batch)
    assert [batch[0].nbytes] == CALLS


@pytest.mark.parametrize("make", LEFT_TO_TORCH.values(), ids=LEFT_TO_TORCH)
def test_all_other_samples_are_torchs_own_business(faster, make):
    batch = make()
    assert outcome(faster, batch) == outcome(ORIGINAL, batch)
    assert CALLS == []


@pytest.mark.parametrize("make", (STREAMED | LEFT_TO_TORCH).values(), ids=STREAMED | LEFT_TO_TORCH)
def test_smaller_samples_are_stacked_and_the_batch_or_the_error_is_torchs(
    faster, make, monkeypatch
):
    monkeypatch.setattr(collate, "SAMPLE_NBYTES", 1 << 40)
    batch = make()
    assert outcome(faster, batch) == outcome(ORIGINAL, batch)
    assert CALLS == []


def test_a_sample_whose_storage_was_emptied_is_not_read(faster):
    collated = []
    faster = collate.faster(lambda batch, *, collate_fn_map: collated.append(batch), copy_and_tell)
    faster([torch.rand(5), emptied()])
    assert (len(collated), CALLS) == (1, [])


@pytest.mark.parametrize("inside", [False, True], ids=["made outside", "made inside"])
@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
def test_modes_of_evaluation_change_nothing(faster, mode, inside):
    with mode() if inside else nullcontext():
        batch = some(3, 5)
    with mode():
        assert outcome(faster, batch) == outcome(ORIGINAL, batch)
    assert outcome(faster, batch) == outcome(ORIGINAL, batch)
    assert len(CALLS) == 2


def test_who_watches_torchs_functions_sees_all_of_them(faster):
    class Watching(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **kwargs or {})

    seen = []
    with Watching():
        faster(some(5))
    assert torch.stack in seen and CALLS == []


def test_small_samples_and_small_batches_are_left_to_torch(faster, monkeypatch):
    monkeypatch.setattr(collate, "SAMPLE_NBYTES", 400)
    monkeypatch.setattr(collate, "STREAM_NBYTES", 1200)
    for nbytes, num in ((396, 9), (400, 2), (400, 3)):
        faster(some(nbytes // 4, num=num))
    assert CALLS == [400]


def test_outside_a_worker_it_is_torchs(faster, monkeypatch):
    monkeypatch.setattr(_utils.worker, "_worker_info", None)
    batch = some(5)
    assert outcome(faster, batch) == outcome(ORIGINAL, batch)
    assert CALLS == []


# -- where it is put -----------------------------------------------------------------------


def test_torchs_function_is_known():
    assert collate.is_known(ORIGINAL)


def test_default_collate_uses_it(faster, monkeypatch):
    monkeypatch.setattr(collate, "stream_copy", copy_and_tell)
    collate.stack_faster()
    x, i = torch_collate.default_collate([(x, i) for i, x in enumerate(some(5))])
    assert (x.shape, i.tolist(), CALLS) == ((3, 5), [0, 1, 2], [20])
    collate.stack_faster()
    assert torch_collate.default_collate_fn_map[torch.Tensor].__wrapped__ is ORIGINAL, "once"


def test_without_the_library_torchs_function_stays(worker, monkeypatch):
    monkeypatch.setattr(collate, "stream_copy", None)
    collate.stack_faster()
    assert torch_collate.default_collate_fn_map[torch.Tensor] is ORIGINAL


def test_a_function_of_the_users_stays(worker, monkeypatch):
    def mine(batch, *, collate_fn_map=None):
        return torch.stack(batch)

    monkeypatch.setattr(collate, "stream_copy", copy_and_tell)
    monkeypatch.setitem(torch_collate.default_collate_fn_map, torch.Tensor, mine)
    collate.stack_faster()
    monkeypatch.setattr(torch_collate, "collate_tensor_fn", mine)
    collate.stack_faster()
    assert torch_collate.default_collate_fn_map[torch.Tensor] is mine
