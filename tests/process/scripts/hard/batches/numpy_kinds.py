"""NumPy arrays of objects, records, dates, strings, big-endian numbers, zero dimensions and scalars."""

import numpy as np
from torch.utils.data import DataLoader

KINDS = [
    np.array([{"a": 1}, None], dtype=object), np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")]),
    np.array(["2020-01-01"], dtype="datetime64[D]"), np.array(["ab", "c"]), np.array(3.5),
    np.arange(3, dtype=">i4"), np.float16(1.5), np.bool_(True), np.zeros((0, 3)), np.ma.array([1, 2], mask=[0, 1]),
    np.matrix([[1, 2]]), np.arange(30_000, dtype=np.uint8), np.str_("x"), np.bytes_(b"y"),
]  # fmt: skip
for workers in (0, 2):
    loader = DataLoader(range(len(KINDS)), None, num_workers=workers, collate_fn=KINDS.__getitem__)
    print([(type(x).__name__, str(x.dtype), repr(x)[:50]) for x in loader])
print(list(DataLoader([np.float32(i) for i in range(4)], 2, num_workers=1)))
