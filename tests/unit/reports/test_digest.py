"""The digest of a batch: its published encoding, spelled out again here by hand."""

import collections
import copy
import dataclasses
import decimal
import hashlib
import os
import pickle
import struct
import subprocess
import sys
import typing
import warnings

import numpy as np
import PIL.Image
import pytest
import torch

from stoker.reports.digest import batch_sha256

u64 = struct.Struct("<Q").pack


def raw(b):
    return u64(len(b)) + b


def text(s):
    return raw(s.encode())


def sha256(encoded):
    return hashlib.sha256(encoded).hexdigest()


def tensor(dtype, shape, elements, name="torch.Tensor"):
    return (
        text("tensor") + text(name) + text(dtype) + u64(len(shape))
        + b"".join(map(u64, shape)) + raw(elements)
    )  # fmt: skip


def quietly(make, *args, **kwargs):
    with warnings.catch_warnings(action="ignore"):  # torch calls CSR a beta feature, once
        return make(*args, **kwargs)


class Pair(typing.NamedTuple):
    x: object
    y: object


@dataclasses.dataclass
class Record:
    x: object
    label: str = "none"


class Marked(torch.Tensor):
    pass


class Opaque:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


SCALARS = {
    "None": (None, text("none")),
    "True": (True, text("bool") + b"\1"),
    "int": (-12, text("int") + text("-12")),
    "large int": (10**5000 + 7, text("int") + text("1" + "0" * 4999 + "7")),
    "float": (-0.0, text("float") + struct.pack("<d", -0.0)),
    "complex": (1 - 2j, text("complex") + struct.pack("<dd", 1, -2)),
    "str": ("grüße", text("str") + text("grüße")),
    "lone surrogate": ("\udc80", text("str") + raw(b"\xed\xb2\x80")),
    "bytes": (b"ab", text("bytes") + raw(b"ab")),
    "bytearray": (bytearray(b"ab"), text("bytearray") + raw(b"ab")),
}

TENSORS = {
    "float32": (
        torch.tensor([[1.0, 2.0, 3.0]]),
        tensor("torch.float32", (1, 3), struct.pack("<fff", 1, 2, 3)),
    ),
    "int64": (torch.tensor([-1]), tensor("torch.int64", (1,), struct.pack("<q", -1))),
    "uint16": (
        torch.tensor([65535], dtype=torch.uint16),
        tensor("torch.uint16", (1,), b"\xff\xff"),
    ),
    "bool": (torch.tensor([True, False]), tensor("torch.bool", (2,), b"\1\0")),
    "bfloat16": (
        torch.tensor([1.0, -2.0], dtype=torch.bfloat16),
        tensor("torch.bfloat16", (2,), b"\x80\x3f\x00\xc0"),
    ),
    "float8": (
        torch.tensor([1.0]).to(torch.float8_e4m3fn),
        tensor("torch.float8_e4m3fn", (1,), b"\x38"),
    ),
    "complex64": (
        torch.tensor([1 + 2j]),
        tensor("torch.complex64", (1,), struct.pack("<ff", 1, 2)),
    ),
    "0-d": (torch.tensor(7, dtype=torch.uint8), tensor("torch.uint8", (), b"\7")),
    "zero-size": (torch.empty(0, 3), tensor("torch.float32", (0, 3), b"")),
    "non-contiguous": (
        torch.arange(6, dtype=torch.uint8).reshape(2, 3).t(),
        tensor("torch.uint8", (3, 2), bytes([0, 3, 1, 4, 2, 5])),
    ),
    "expanded": (
        torch.tensor([[5]], dtype=torch.uint8).expand(2, 2),
        tensor("torch.uint8", (2, 2), b"\5\5\5\5"),
    ),
    "slice with an offset": (
        torch.arange(9, dtype=torch.uint8)[3:6],
        tensor("torch.uint8", (3,), b"\3\4\5"),
    ),
    "conjugate view": (
        torch.tensor([1 + 2j]).conj(),
        tensor("torch.complex64", (1,), struct.pack("<ff", 1, -2)),
    ),
    "negative view": (
        torch.tensor([1 + 2j]).conj().imag,
        tensor("torch.float32", (1,), struct.pack("<f", -2)),
    ),
    "requires_grad": (
        torch.tensor([1.0], requires_grad=True),
        tensor("torch.float32", (1,), struct.pack("<f", 1)),
    ),
    "computed with grad": (
        torch.tensor([1.0], requires_grad=True) * 2,
        tensor("torch.float32", (1,), struct.pack("<f", 2)),
    ),
    "parameter": (
        torch.nn.Parameter(torch.tensor([1.0])),
        tensor("torch.float32", (1,), struct.pack("<f", 1), "torch.nn.parameter.Parameter"),
    ),
    "subclass": (
        torch.tensor([1.0]).as_subclass(Marked),
        tensor("torch.float32", (1,), struct.pack("<f", 1), f"{__name__}.Marked"),
    ),
    "meta": (torch.empty(2, device="meta"), tensor("torch.float32", (2,), b"")),
    "storage": (
        torch.tensor([1, 2], dtype=torch.uint8).untyped_storage(),
        text("storage") + text("torch.uint8") + raw(b"\1\2"),
    ),
}

INDICES = tensor("torch.int64", (1, 1), struct.pack("<q", 1))
ONE = tensor("torch.float32", (1,), struct.pack("<f", 1))
SPARSE = {
    "coo": (
        torch.sparse_coo_tensor([[1, 0]], [1.0, 2.0], (2,), check_invariants=False),
        text("sparse_coo") + text("torch.Tensor") + text("torch.float32") + u64(1) + u64(2) + b"\0"
        + tensor("torch.int64", (1, 2), struct.pack("<qq", 1, 0))
        + tensor("torch.float32", (2,), struct.pack("<ff", 1, 2)),
    ),
    "coalesced coo": (
        torch.sparse_coo_tensor([[1]], [1.0], (2,), check_invariants=False).coalesce(),
        text("sparse_coo") + text("torch.Tensor") + text("torch.float32") + u64(1) + u64(2)
        + b"\1" + INDICES + ONE,
    ),
    "csr": (
        quietly(torch.sparse_csr_tensor, [0, 1], [0], [1.0], size=(1, 1), check_invariants=False),
        text("sparse_csr") + text("torch.Tensor") + text("torch.float32") + u64(2) + u64(1) + u64(1)
        + tensor("torch.int64", (2,), struct.pack("<qq", 0, 1))
        + tensor("torch.int64", (1,), struct.pack("<q", 0)) + ONE,
    ),
}  # fmt: skip


def array(descr, shape, elements, name="numpy.ndarray"):
    return (
        text("ndarray") + text(name) + text(descr) + u64(len(shape))
        + b"".join(map(u64, shape)) + elements
    )  # fmt: skip


ARRAYS = {
    "float32": (np.float32([1, 2]), array("<f4", (2,), raw(struct.pack("<ff", 1, 2)))),
    "big-endian": (np.array([1], ">i2"), array(">i2", (1,), raw(b"\0\1"))),
    "Fortran order": (
        np.asfortranarray(np.uint8([[1, 2], [3, 4]])),
        array("|u1", (2, 2), raw(b"\1\2\3\4")),
    ),
    "structured": (
        np.array([(1, 2)], dtype=[("a", "u1"), ("b", "<u2")]),
        array("[('a', '|u1'), ('b', '<u2')]", (1,), raw(b"\1\2\0")),
    ),
    "objects": (
        np.array(["a", None], dtype=object),
        array("|O", (2,), text("objects") + text("str") + text("a") + text("none")),
    ),
    "strings": (
        np.array(["a"], dtype=np.dtypes.StringDType()),
        array(np.dtypes.StringDType().str, (1,), text("objects") + text("str") + text("a")),
    ),
    "scalar": (np.float32(1), text("scalar") + text("<f4") + raw(struct.pack("<f", 1))),
}

CONTAINERS = {
    "list": (
        [1, None],
        text("list") + text("builtins.list") + u64(2)
        + text("int") + text("1") + text("none"),
    ),
    "tuple": ((), text("tuple") + text("builtins.tuple") + u64(0)),
    "deque": (
        collections.deque([None]),
        text("deque") + text("collections.deque") + u64(1) + text("none"),
    ),
    "dict": (
        {"b": None, "a": True},
        text("mapping") + text("builtins.dict") + u64(2)
        + text("str") + text("b") + text("none")
        + text("str") + text("a") + text("bool") + b"\1",
    ),
    "user dict": (
        collections.UserDict(b=None),
        text("mapping") + text("collections.UserDict") + u64(1)
        + text("str") + text("b") + text("none"),
    ),
    "namedtuple": (
        Pair(None, "y"),
        text("namedtuple") + text(f"{__name__}.Pair") + u64(2)
        + text("x") + text("none") + text("y") + text("str") + text("y"),
    ),
    "dataclass": (
        Record(None, "y"),
        text("dataclass") + text(f"{__name__}.Record") + u64(2)
        + text("x") + text("none") + text("label") + text("str") + text("y"),
    ),
    "set": (
        {None},
        text("set") + text("builtins.set") + u64(1) + hashlib.sha256(text("none")).digest(),
    ),
}  # fmt: skip

IMAGES = {
    "RGB": (
        PIL.Image.new("RGB", (2, 1), (1, 2, 3)),
        text("image") + text("RGB") + u64(2) + u64(1) + raw(b"\1\2\3\1\2\3") + raw(b""),
    ),
    "L": (
        PIL.Image.new("L", (1, 1), 9),
        text("image") + text("L") + u64(1) + u64(1) + raw(b"\11") + raw(b""),
    ),
}

KNOWN = [
    pytest.param(x, encoded, id=f"{group}: {name}")
    for group, table in {
        "scalar": SCALARS, "tensor": TENSORS, "sparse": SPARSE,
        "numpy": ARRAYS, "container": CONTAINERS, "PIL": IMAGES,
    }.items()
    for name, (x, encoded) in table.items()
]  # fmt: skip


@pytest.mark.parametrize(("x", "encoded"), KNOWN)
def test_a_digest_is_the_sha256_of_the_published_encoding(x, encoded):
    assert batch_sha256(x) == sha256(encoded)


def test_a_digest_once_published_stays():
    batch = {"x": torch.arange(6, dtype=torch.int32).reshape(2, 3), "y": ["a", None]}
    assert batch_sha256(batch) == (
        "d3063da96dbfb7e2135746af3ea8d149fb9d86f1000d8eb64b5b04b8d382d725"
    )


def test_a_nested_tensor_counts_by_its_constituents():
    x = torch.nested.nested_tensor([torch.ones(1), torch.ones(1)], layout=torch.jagged)
    head = text("nested") + text(f"{type(x).__module__}.NestedTensor") + text("torch.float32")
    assert batch_sha256(x) == sha256(head + u64(2) + ONE + ONE)


def test_anything_else_counts_by_its_pickle_with_leaves_by_value():
    class ByHand(pickle.Pickler):
        def persistent_id(self, obj):
            leaves = {
                str: lambda: text("str") + text(obj),
                torch.Tensor: lambda: tensor("torch.float32", (1,), struct.pack("<f", 1)),
            }
            return sha256(leaves[type(obj)]()) if type(obj) in leaves else None

    import io

    out = io.BytesIO()
    x = Opaque(x=torch.ones(1), name="n")
    ByHand(out, protocol=5).dump(x)
    assert batch_sha256(x) == sha256(text("pickle") + raw(out.getvalue()))


def test_what_cannot_be_pickled_counts_by_its_type():
    name = text("opaque") + text("builtins.function")
    assert batch_sha256(lambda: 1) == sha256(name)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Opaque(x=torch.arange(5.0), y=[np.arange(3), "s"], z={"a", "b"}),
        lambda: torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)]),
        lambda: [PIL.Image.effect_noise((1, 1), 0), decimal.Decimal("1.5")],
        lambda: collections.OrderedDict(a=torch.ones(2, 3).t()),
        lambda: torch.nn.Linear(1, 1).requires_grad_(False).eval().weight.detach().zero_(),
    ],
)
def test_a_copy_made_by_value_has_the_same_digest(make):
    x = make()
    assert batch_sha256(x) == batch_sha256(x) == batch_sha256(copy.deepcopy(x))
    assert batch_sha256(x) == batch_sha256(pickle.loads(pickle.dumps(x)))


DIFFERENT = [
    1, True, 1.0, "1", b"1", bytearray(b"1"), (1,), [1], {1}, {1: 1}, {"1": 1}, 1 + 0j, None, [], (),
    [[1], [2]], [[1, 2], []], [[1, 2]], ["ab", ""], ["a", "b"], 0.0, -0.0, float("nan"),
    {"a": 1, "b": 2}, {"b": 2, "a": 1}, collections.OrderedDict(a=1, b=2),
    Pair(1, 2), Record(1, 2), (1, 2),
    torch.ones(2), torch.ones(1, 2), torch.ones(2, dtype=torch.float64), torch.zeros(2),
    torch.ones(2, dtype=torch.int32), torch.ones(2).as_subclass(Marked), torch.ones(2).tolist(),
    torch.ones(2).numpy(), torch.ones(2).untyped_storage(),
    torch.empty(0, 2), torch.empty(2, 0), torch.empty(0), torch.tensor(1.0), torch.tensor([1.0]),
    np.float32(1), np.ones(1, "f4"), np.ones((), "f4"), np.ones(1, ">f4"), np.ma.ones(1),
    np.ma.array([1.0], mask=[True]), np.datetime64(1, "s"), np.datetime64(1, "ms"),
    PIL.Image.new("L", (1, 2)), PIL.Image.new("L", (2, 1)), PIL.Image.new("P", (2, 1)),
    PIL.Image.new("L", (2, 1)).convert("P"), Opaque(x=1), Opaque(x=2), Opaque(x=torch.ones(1)),
    Opaque(x=torch.zeros(1)), Opaque(s="a"), Opaque(s="b"), int, str,
]  # fmt: skip


def test_batches_that_differ_in_anything_have_different_digests():
    assert len({batch_sha256(x) for x in DIFFERENT}) == len(DIFFERENT)


def test_large_tensors_are_read_in_full():
    x = torch.zeros(1 << 20)
    before = batch_sha256(x)
    x[-1] = 1
    assert batch_sha256(x) != before


def test_a_digest_leaves_the_batch_as_it_was():
    x = torch.ones(2, 3, requires_grad=True)
    batch_sha256([x, x.t()])
    assert x.grad_fn is None
    assert x.requires_grad
    assert x.grad is None


def test_a_set_of_strings_has_one_digest_under_every_hash_seed():
    program = "from stoker.reports.digest import *; print(batch_sha256({'a', 'b', 'c', 'd'}))"
    digests = {
        subprocess.check_output(
            [sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": seed}
        )
        for seed in ("1", "2", "3")
    }
    assert len(digests) == 1


def test_hashing_imports_no_library_of_the_user():
    program = (
        "import sys; from stoker.reports.digest import batch_sha256; batch_sha256([1, {'a': 2.0}]);"
        "print([m for m in ('torch', 'numpy', 'PIL') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"
