"""How small the batches of images.py become on a network, and how fast, on one core.

NUM_BATCHES real batches in turn, so that none is found in a cache, into memory that was used
before, as a worker's and a receiver's are. Encoding includes the proof of every element.
Prints bytes_ratio, and GB of what the tensor has for each second of CPU time, which other
processes on the machine do not lengthen; the same of other tensors, prefixed.
Not a plain script: it measures stoker's own module, so there is one side only.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import torch
from images import make_loader
from one_side import GB, num_usable_cores, print_line

from stoker.wire.lossless import Coded, Encoder, decode, warm

NUM_BATCHES = 4
THIN_NBYTES_PER_S = 1e6  # so thin that the codec is used however busy the machine is


def photographs() -> list[np.ndarray]:
    """Full batches of images.py: float32 64x3x224x224."""
    loader = make_loader(num_usable_cores(), num_rounds=1)
    return [images.numpy().copy() for images, _ in islice(loader, NUM_BATCHES)]


def channels_last(photos: np.ndarray) -> np.ndarray:
    return torch.from_numpy(photos).contiguous(memory_format=torch.channels_last).numpy()


def audio(number: int) -> np.ndarray:
    """32 clips of 10 s at 16 kHz, as torchaudio.load gives them."""
    rng, seconds = np.random.default_rng(number), np.arange(160_000) / 16_000
    loud = np.sin(2 * np.pi * rng.uniform(80, 800, (32, 1, 1)) * seconds) * rng.uniform(0, 0.9)
    samples = np.rint((loud + rng.normal(0, 0.01, loud.shape)) * 32_767).clip(-32_768, 32_767)
    return samples.astype(np.int16).astype(np.float32) / np.float32(32_768)


def masks(photos: np.ndarray) -> np.ndarray:
    """uint8 classes with smooth borders: brightness in eight steps, of every eighth pixel."""
    coarse = photos[:, 0, ::8, ::8].repeat(8, axis=1).repeat(8, axis=2)
    return np.digitize(coarse, np.linspace(-2, 2, 7)).astype(np.uint8)


def token_ids(number: int) -> np.ndarray:
    """int64 labels of a language model, as frequent as words are."""
    drawn = np.random.default_rng(number).zipf(1.2, (64, 2048))
    return np.minimum(drawn, 50_256)


def kinds(photos: list[np.ndarray]) -> Iterator[tuple[str, list[np.ndarray]]]:
    """By the prefix of their figures; one at a time, for memory's sake."""
    yield "", photos
    yield "channels_last_", [channels_last(batch) for batch in photos]
    yield "audio_", [audio(number) for number in range(NUM_BATCHES)]
    yield "uint8_masks_", [masks(batch) for batch in photos]
    yield "int64_masks_", [masks(batch).astype(np.int64) for batch in photos]
    yield "int64_tokens_", [token_ids(number) for number in range(NUM_BATCHES)]


def memory_of(batch: np.ndarray) -> np.ndarray:
    """The bytes of a dense array, from first to last."""
    strided = np.lib.stride_tricks.as_strided
    return strided(batch, (batch.size,), (batch.itemsize,)).view(np.uint8)


def median_s(work: Callable[[], None], num_rounds: int) -> float:
    times_s = []
    for _ in range(num_rounds):
        start_s = time.thread_time()
        work()
        times_s.append(time.thread_time() - start_s)
    return statistics.median(times_s)


def encoded(encoder: Encoder, batch: np.ndarray) -> Coded:
    coded = encoder.encode(batch, THIN_NBYTES_PER_S)
    if coded is None:
        raise SystemExit(f"{batch.dtype} {batch.shape}: not coded")
    return coded


def measure(batches: list[np.ndarray], num_rounds: int) -> dict[str, float]:
    encoder, raw_nbytes = Encoder(), sum(batch.nbytes for batch in batches)

    def encode_all() -> None:
        for batch in batches:
            encoded(encoder, batch)  # let go at once, as after it was sent

    median_s(encode_all, 2)  # learns the tables, warms the memory
    encode_s = median_s(encode_all, num_rounds)

    sent = [encoded(encoder, batch) for batch in batches]
    payloads = [memoryview(bytearray(b"".join(coded.parts))) for coded in sent]
    outs = [np.zeros(batch.nbytes, np.uint8) for batch in batches]

    def decode_all() -> None:
        for coded, payload, out in zip(sent, payloads, outs, strict=True):
            decode(coded.codec, coded.head, payload, out.data)

    decode_all()
    decode_s = median_s(decode_all, num_rounds)
    for batch, out in zip(batches, outs, strict=True):
        if not np.array_equal(memory_of(batch), out):
            raise SystemExit(f"{batch.dtype} {batch.shape}: came back otherwise")
    return {
        "bytes_ratio": raw_nbytes / sum(coded.nbytes for coded in sent),
        "encode_gb_per_s": raw_nbytes / GB / encode_s,
        "decode_gb_per_s": raw_nbytes / GB / decode_s,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-rounds", type=int, default=15, help="the median of them counts")
    flags = parser.parse_args()
    torch.set_num_threads(1)
    warm()
    line: dict[str, float] = {}
    for prefix, batches in kinds(photographs()):
        found = measure(batches, flags.num_rounds)
        line |= {f"{prefix}{key}": value for key, value in found.items()}
    print_line(line)


if __name__ == "__main__":
    main()
