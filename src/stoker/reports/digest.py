"""Hashes each batch to a hex digest by a published encoding, so that anybody can check a run.

Promise: equal digests mean equal values, types, dtypes, shapes and order; nothing that a batch does
not carry by value (device, strides, storage offset, sharing, requires_grad, identity) counts.
Ban: imports neither torch nor numpy nor PIL (what was never imported cannot be in a batch), never
changes the batch, opens nothing.

**The encoding.** `batch_sha256(x)` is the hex SHA-256 of `node(x)`, built from

    num(n)    n as 8 bytes, unsigned, little-endian
    raw(b)    num(len(b)), then the bytes b
    text(s)   raw(s in UTF-8, lone surrogates passed through)
    name(x)   text(type(x).__module__ + "." + type(x).__qualname__)

where `node(x)` is, by the first line that fits (exact types where it says "exactly"):

    None                       text("none")
    exactly bool               text("bool"), then one byte, 0 or 1
    exactly int                text("int"), text(decimal digits, "-" in front if negative)
    exactly float              text("float"), 8 bytes IEEE 754, little-endian
    exactly complex            text("complex"), real and imaginary part like float
    exactly str                text("str"), text(x)
    exactly bytes, bytearray   text("bytes") or text("bytearray"), raw(x)
    torch.Tensor               text("tensor"), name(x), text(dtype, e.g. "torch.float32"),
                               num(ndim), num(d) for each dimension, then raw(the elements in C order,
                               little-endian; bool one byte each; complex as real, imaginary)
      sparse COO               text("sparse_coo"), name, dtype, ndim and dimensions as above, one byte
                               (1 = coalesced), node(indices), node(values), as stored
      sparse CSR, CSC,         text("sparse_csr") or _csc, _bsr, _bsc, name, dtype, ndim and dimensions,
      BSR, BSC                 node(crow_ or ccol_indices), node(col_ or row_indices), node(values)
      nested                   text("nested"), name, dtype, num(count), node(each constituent)
      on the meta device       as strided, with zero bytes of elements
    torch storage              text("storage"), text(dtype; "torch.uint8" if untyped), raw(its bytes)
    numpy.ndarray, memmap,     text("ndarray"), name(x), text(descr), num(ndim), num(d) for each dimension,
    recarray (exactly)         then raw(the elements in C order, in the byte order that descr tells);
                               elements that are objects or variable-length strings instead:
                               text("objects"), node(each of x.ravel().tolist())
    numpy scalar               text("scalar"), text(descr), raw(its bytes)
    PIL image                  text("image"), text(mode), num(width), num(height), raw(x.tobytes()),
                               raw(palette bytes, none if there is no palette)
    namedtuple                 text("namedtuple"), name(x), num(count), then text(field), node(value) each
    tuple, list, deque,        text("tuple"), "list", "deque" or "UserList" (subclasses by their base),
    UserList                   name(x), num(count), node(each)
    mapping                    text("mapping"), name(x), num(count), then node(key), node(value) each,
                               in insertion order
    dataclass                  text("dataclass"), name(x), num(count), then text(field), node(value) each
    set, frozenset             text("set"), name(x), num(count), the SHA-256 (32 bytes) of each element's
                               node, sorted
    anything else              text("pickle"), raw(pickle of x, protocol 5, in which every str, bytes, set,
                               tensor, storage, array and image is a persistent id: the hex SHA-256 of
                               its own node); if it cannot be pickled, text("opaque"), name(x)

`descr` is `dtype.str` ("<f4"), or repr(dtype.descr) where the dtype has fields. "dtype" of a tensor is
`str(x.dtype)`. Conjugate and negative views count by their values.
"""

import collections
import ctypes
import dataclasses
import hashlib
import io
import pickle
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def batch_sha256(batch: Any) -> str:
    """Return the hex SHA-256 of the batch by the encoding above: 64 characters.

    Works on any object; never raises for what a DataLoader can deliver. A list that contains itself
    raises RecursionError.
    """
    return _sha256(batch).hexdigest()


def _sha256(x: Any) -> "hashlib._Hash":
    digest = hashlib.sha256()
    _node(x, digest.update)
    return digest


Write = Callable[[Any], None]


def _num(n: int, write: Write) -> None:
    write(struct.pack("<Q", n))


def _raw(b: Any, write: Write) -> None:
    _num(len(b), write)
    write(b)


def _text(s: str, write: Write) -> None:
    _raw(s.encode("utf-8", "surrogatepass"), write)


def _name(x: Any, write: Write) -> None:
    _text(f"{type(x).__module__}.{type(x).__qualname__}", write)


def _node(x: Any, write: Write) -> None:
    if not (_plain(x, write) or _foreign(x, write) or _container(x, write)):
        _anything_else(x, write)


def _plain(x: Any, write: Write) -> bool:
    kind = type(x)
    if x is None:
        _text("none", write)
    elif kind is bool:
        _text("bool", write)
        write(b"\1" if x else b"\0")
    elif kind is int:
        _text("int", write)
        _text(_decimal(x), write)
    elif kind is float:
        _text("float", write)
        write(struct.pack("<d", x))
    elif kind is complex:
        _text("complex", write)
        write(struct.pack("<dd", x.real, x.imag))
    elif kind is str:
        _text("str", write)
        _text(x, write)
    elif kind in (bytes, bytearray):
        _text(kind.__name__, write)
        _raw(x, write)
    else:
        return False
    return True


def _decimal(n: int) -> str:
    try:
        return str(n)
    except ValueError:  # longer than sys.get_int_max_str_digits(), which guards str() but not this
        quotient, remainder = divmod(abs(n), 10**4000)
        return f"{'-' if n < 0 else ''}{_decimal(quotient)}{remainder:04000d}"


def _foreign(x: Any, write: Write) -> bool:
    """Encode tensors, arrays and images, if their library was imported at all; False for others."""
    encode = _foreign_encoding(x)
    if encode is not None:
        encode(x, write)
    return encode is not None


def _foreign_encoding(x: Any) -> Callable[[Any, Write], None] | None:
    torch, numpy, image = (sys.modules.get(m) for m in ("torch", "numpy", "PIL.Image"))
    if torch is not None and isinstance(x, torch.Tensor):
        return _tensor
    if torch is not None and torch.is_storage(x):
        return _storage
    if numpy is not None and type(x) in (numpy.ndarray, numpy.memmap, numpy.recarray):
        return _ndarray
    if numpy is not None and isinstance(x, numpy.generic):
        return _scalar
    if image is not None and isinstance(x, image.Image):
        return _image
    return None


COMPRESSED = {  # layout -> names of its outer and inner indices
    "torch.sparse_csr": ("crow_indices", "col_indices"),
    "torch.sparse_csc": ("ccol_indices", "row_indices"),
    "torch.sparse_bsr": ("crow_indices", "col_indices"),
    "torch.sparse_bsc": ("ccol_indices", "row_indices"),
}


def _tensor(x: Any, write: Write) -> None:
    torch = sys.modules["torch"]
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
        layout = str(x.layout)
        if x.is_nested:
            _text("nested", write)
            _name(x, write)
            _text(str(x.dtype), write)
            _items(x.detach().unbind(), write)
        elif layout == "torch.sparse_coo":
            _head("sparse_coo", x, str(x.dtype), write)
            write(b"\1" if x.is_coalesced() else b"\0")
            _node(x._indices(), write)
            _node(x._values(), write)
        elif layout in COMPRESSED:
            _head(layout.removeprefix("torch."), x, str(x.dtype), write)
            for part in (*COMPRESSED[layout], "values"):
                _node(getattr(x, part)(), write)
        else:
            _head("tensor", x, str(x.dtype), write)
            _elements(x, write)


def _head(tag: str, x: Any, dtype: str, write: Write) -> None:
    _text(tag, write)
    _name(x, write)
    _text(dtype, write)
    _num(len(x.shape), write)
    for length in x.shape:
        _num(length, write)


def _elements(x: Any, write: Write) -> None:
    if x.device.type == "meta":
        _num(0, write)
    else:
        host = x.detach().cpu()
        dense = host if str(x.layout) == "torch.strided" else host.to_dense()
        flat = dense.resolve_conj().resolve_neg().contiguous()
        _memory(flat.data_ptr(), flat.numel() * flat.element_size(), write)


def _storage(x: Any, write: Write) -> None:
    torch = sys.modules["torch"]
    _text("storage", write)
    _text(str(getattr(x, "dtype", torch.uint8)), write)
    # What `.cpu()` gives must outlive the reading of its bytes, hence the name.
    host = (x._untyped_storage if isinstance(x, torch.TypedStorage) else x).cpu()
    _memory(host.data_ptr(), host.nbytes(), write)


def _memory(address: int, nbytes: int, write: Write) -> None:
    _num(nbytes, write)
    if nbytes:
        write((ctypes.c_char * nbytes).from_address(address))


def _descr(dtype: Any) -> str:
    return dtype.str if dtype.names is None else repr(dtype.descr)


def _ndarray(x: Any, write: Write) -> None:
    _head("ndarray", x, _descr(x.dtype), write)
    if x.dtype.hasobject or x.dtype.kind == "T":
        _text("objects", write)
        for element in x.ravel().tolist():
            _node(element, write)
    else:
        _raw(x.tobytes(), write)


def _scalar(x: Any, write: Write) -> None:
    _text("scalar", write)
    _text(_descr(x.dtype), write)
    _raw(x.tobytes(), write)


def _image(x: Any, write: Write) -> None:
    _text("image", write)
    _text(x.mode, write)
    _num(x.width, write)
    _num(x.height, write)
    _raw(x.tobytes(), write)
    _raw(bytes(x.getpalette() or b"") if x.mode in ("P", "PA") else b"", write)


SEQUENCES = (tuple, list, collections.deque, collections.UserList)


def _container(x: Any, write: Write) -> bool:
    base = next((kind for kind in SEQUENCES if isinstance(x, kind)), None)
    if base is tuple and hasattr(x, "_fields"):
        _fields("namedtuple", x, x._fields, write)
    elif base is not None:
        _text(base.__name__, write)
        _name(x, write)
        _items(x, write)
    elif isinstance(x, Mapping):
        _text("mapping", write)
        _name(x, write)
        _num(len(x), write)
        for key in x:
            _node(key, write)
            _node(x[key], write)
    elif dataclasses.is_dataclass(x) and not isinstance(x, type):
        _fields("dataclass", x, [field.name for field in dataclasses.fields(x)], write)
    elif isinstance(x, set | frozenset):
        _set(x, write)
    else:
        return False
    return True


def _items(x: Any, write: Write) -> None:
    _num(len(x), write)
    for item in x:
        _node(item, write)


def _fields(tag: str, x: Any, fields: Iterable[str], write: Write) -> None:
    _text(tag, write)
    _name(x, write)
    _num(len(list(fields)), write)
    for field in fields:
        _text(field, write)
        _node(getattr(x, field), write)


def _set(x: Any, write: Write) -> None:
    _text("set", write)
    _name(x, write)
    _num(len(x), write)
    for element in sorted(_sha256(element).digest() for element in x):
        write(element)


def _anything_else(x: Any, write: Write) -> None:
    pickled = io.BytesIO()
    try:
        _Pickler(pickled, protocol=5).dump(x)
    except Exception:  # whatever a stranger's __reduce__ raises
        _text("opaque", write)
        _name(x, write)
    else:
        _text("pickle", write)
        _raw(pickled.getvalue(), write)


class _Pickler(pickle.Pickler):
    """Pickles leaves by value: torch's pickles hold addresses; equal strings may be one or two."""

    def persistent_id(self, obj: Any) -> str | None:
        leaf = type(obj) in (str, bytes, set, frozenset) or _foreign_encoding(obj) is not None
        return _sha256(obj).hexdigest() if leaf else None
