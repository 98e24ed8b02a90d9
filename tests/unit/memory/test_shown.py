"""What comes back from the shelf shows memory as what was made did, as far as a script can see it."""

import numpy as np
import pytest
import torch

from stoker.memory.store import NotStorable, Value, encode

tv_tensors = pytest.importorskip("torchvision.tv_tensors")


def shown_of(value):
    """All that a script sees of whose memory a tensor or array shows."""
    base = value._base if isinstance(value, torch.Tensor) else value.base
    if isinstance(value, np.ndarray):
        whole = (base.shape, base.strides, base.dtype) if isinstance(base, np.ndarray) else None
        return value.strides, str(value.flags), type(base), whole
    whole = None if base is None else (base.shape, base.stride(), base.dtype, base._is_view())
    storage = value.untyped_storage()
    return (
        type(value), value.stride(), value.storage_offset(), storage.nbytes(), storage.is_shared(),
        value._is_view(), type(base), whole, value.requires_grad, value.is_leaf,
    )  # fmt: skip


# Each is made when it is asked for: nothing else holds it.
VALUES = {
    "its own": lambda: torch.rand(3, 4),
    "of few values": lambda: torch.randint(0, 9, (3, 64, 64)).float(),
    "turned, its own": lambda: torch.rand(3, 4, 5).permute(2, 0, 1).clone(),
    "unsqueezed": lambda: torch.rand(3, 4)[None],
    "permuted": lambda: torch.rand(3, 4, 5).permute(2, 0, 1),
    "of few values, permuted": lambda: torch.randint(0, 9, (64, 64, 3)).float().permute(2, 0, 1),
    "of an array": lambda: torch.from_numpy(np.random.rand(3, 4)).permute(1, 0),
    "expanded": lambda: torch.rand(1, 3).expand(2, 3),
    "a part": lambda: torch.rand(3, 8)[:, 1:7],
    "a part of few values": lambda: torch.randint(0, 9, (3, 64, 64)).float()[1:],
    "an image of torchvision's": lambda: tv_tensors.Image(torch.rand(4, 5, 3).permute(2, 0, 1)),
    "a part of an image": lambda: tv_tensors.Image(torch.rand(3, 4, 6))[..., 1:],
    "array, its own": lambda: np.random.rand(3, 4),
    "array, Fortran's order": lambda: np.asfortranarray(np.random.rand(3, 1, 4)),
    "array, turned, its own": lambda: np.random.rand(3, 4, 5).transpose(2, 0, 1).copy("K"),
    "array, transposed": lambda: np.random.rand(3, 4, 5).transpose(2, 0, 1),
    "array of few values, transposed": lambda: np.ones((64, 64, 3)).transpose(2, 0, 1),
    "array of few values, turned": lambda: np.ones((64, 64, 3)).transpose(2, 0, 1).copy("K"),
    "array, reshaped": lambda: np.random.rand(12).reshape(3, 4),
    "array of the same shape": lambda: (np.ones((4, 6)) * 2).reshape(4, 6),
    "array, a part": lambda: np.random.rand(3, 8)[:, 1:7],
    "array of a tensor": lambda: torch.rand(3, 4).numpy(),
    "array of a tensor, transposed": lambda: torch.rand(3, 4).T.contiguous().detach().numpy(),
    "array of a bytearray": lambda: np.ndarray((3, 4), "u1", bytearray(range(12)), 0, (1, 3)),
}  # fmt: skip


@pytest.mark.parametrize("make", VALUES.values(), ids=VALUES)
def test_what_comes_back_shows_memory_as_what_was_made(make):
    value = make()
    memory = bytearray(b"".join(encode(value)))
    found = Value(memoryview(memory)).build(copied=True)
    assert shown_of(found) == shown_of(value)
    assert found.tolist() == value.tolist()
    found[:1] = 0
    assert Value(memoryview(memory)).build(copied=True).tolist() == value.tolist()


def header():
    return np.zeros((), [("dim", "<i2", (8,)), ("scale", "<f4"), ("name", "S8")])


def test_a_field_of_a_header_comes_back_without_the_rest_of_it():
    """As MONAI hands on what a NIfTI file tells of itself; `base` is not the header then."""
    fields = header()
    fields["dim"], fields["scale"] = range(8), 0.5
    value = {name: fields[name] for name in ("dim", "scale")}
    del fields
    memory = bytearray(b"".join(encode(value)))
    found = Value(memoryview(memory)).build(copied=True)
    for name, field in found.items():
        assert shown_of(field)[:3] == shown_of(value[name])[:3]
        assert field.tolist() == value[name].tolist()
    held = value["dim"].base
    with pytest.raises(NotStorable):
        encode(value)
    del held
    with pytest.raises(NotStorable):
        encode([value["dim"]])  # who holds the other one?


KEPT = {"tensor": torch.zeros(3, 4), "array": np.zeros((3, 4)), "header": header()}
REFUSED = {
    "a row": lambda: torch.rand(3, 4)[1],
    "the first row": lambda: torch.rand(3, 4)[0],
    "what was shared": lambda: torch.rand(3).share_memory_(),
    "a view of what is kept": lambda: KEPT["tensor"][None],
    "a row of an array": lambda: np.zeros((3, 4))[1],
    "other elements of an array": lambda: np.zeros(3).view("i8"),
    "an array that shows one that is kept": lambda: KEPT["array"].T,
    "an array of a tensor that is kept": lambda: KEPT["tensor"].numpy(),
    "an array of one that is kept, detached": lambda: KEPT["tensor"].detach().numpy(),
    "an array of a part of a tensor": lambda: torch.rand(3)[1:].numpy(),
    "a part of an array of a tensor": lambda: torch.rand(3).numpy()[1:],
    "a field of a header that is kept": lambda: KEPT["header"]["dim"],
    "an array of an array of bytes": lambda: np.frombuffer(bytearray(8), "u1")[:4],
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_what_shows_other_memory_is_refused_where_a_script_sees_it(make):
    value = make()
    with pytest.raises(NotStorable):
        encode([value])
    encode([value], for_batch=True)  # torch's collate only copies it
