"""How fast tensors of few values are encoded and decoded (wire/palette.py), beside a plain copy.

Prints, for normalised images of 224 x 224 in cold memory, elements a CPU second: of the encoder, of
the decoder into a batch (streaming stores) and into a cache (ordinary ones), and of a copy of what
was decoded; and bytes a CPU second of the check of what was coded.
"""

import ctypes
import time
from collections.abc import Callable

import torch
from one_side import print_line

from stoker.wire.palette import Planes, palette
from stoker.wire.stream_copy import stream_copy

NUM, SHAPE = 256, (3, 224, 224)  # 154 MB decoded, 38 MB coded: neither stays in a core's own caches


def per_s(work: Callable[[int], object], num_each: int, num_rounds: int = 5) -> float:
    """Return how many elements or bytes a CPU second, of the fastest round."""
    fastest_s = float("inf")
    for _ in range(num_rounds):
        began_s = time.process_time()
        for k in range(NUM):
            work(k)
        fastest_s = min(fastest_s, time.process_time() - began_s)
    return NUM * num_each / fastest_s


def main() -> None:
    assert palette is not None and stream_copy is not None, (
        "stoker was installed without a compiler"
    )
    levels = torch.arange(256)[None, :] / 255
    mean, std = torch.tensor([[0.485], [0.456], [0.406]]), torch.tensor([[0.229], [0.224], [0.225]])
    tables = (levels - mean) / std
    noise = torch.randint(0, 256, (NUM, SHAPE[0], SHAPE[1] * SHAPE[2]))
    images = torch.gather(tables.expand(NUM, -1, -1), 2, noise).reshape(NUM, *SHAPE)
    planes = Planes(SHAPE[0], SHAPE[1] * SHAPE[2], 4)
    coded = [palette.encode(image.data_ptr(), planes) for image in images]
    at = [ctypes.addressof(ctypes.c_char.from_buffer(each)) for each in coded if each is not None]
    batch, small = torch.zeros(NUM, *SHAPE), torch.zeros(SHAPE)
    rows = [row.data_ptr() for row in batch]
    sources, num_elements = [image.data_ptr() for image in images], images[0].numel()
    encode, decode, check = palette.encode, palette.decode, palette.check
    small_at, nbytes = small.data_ptr(), planes.coded_nbytes
    line = {
        "encoded_per_s": per_s(lambda k: encode(sources[k], planes), num_elements),
        "decoded_per_s": per_s(lambda k: decode(rows[k], at[k], planes, True), num_elements),
        "decoded_small_per_s": per_s(lambda k: decode(small_at, at[k], planes, False), num_elements),
        "copied_per_s": per_s(lambda k: stream_copy(rows[k], (sources[k],), planes.nbytes), num_elements),
        "checked_nbytes_per_s": per_s(lambda k: check(at[k], nbytes), nbytes),
    }  # fmt: skip
    assert all(torch.equal(a, b) for a, b in zip(batch, images, strict=True))
    print_line(line)


if __name__ == "__main__":
    main()
