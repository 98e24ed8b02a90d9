"""Computes where each block of a DDP bucket lies in the messages between the ranks.

A bucket's segments (parameters) are cut into blocks, and the blocks, in order, are shared out to
the ranks: a rank's shard is what it adds up. One message is one shard's blocks, one after the
other, and all messages of a bucket are as long as the longest, so that collectives may be even.
No thread, process or torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stoker.gradients.codes import BLOCK_LEN, Code

# The columns of a table of blocks.
START, LENGTH, BITS, PLACE, MEMORY = range(5)
NUM_COLUMNS = 5
NOWHERE = -1


class Segment(NamedTuple):
    """A parameter in a bucket. start, length: elements; memory: where its residual begins, in
    elements of all residuals; NOWHERE: it has none."""

    start: int
    length: int
    code: Code
    memory: int = NOWHERE


@dataclass(frozen=True)
class Layout:
    """The blocks of a bucket, and the shards that they make up.

    blocks: one row each, (num_blocks, 5) int64: first element, elements, bits an element, first
    byte in its message, first element of its residual. firsts: (num_ranks + 1,) first block of each
    shard. message_nbytes: of one shard's message, whole words.
    """

    blocks: npt.NDArray[np.int64]
    firsts: tuple[int, ...]
    message_nbytes: int

    @property
    def num_ranks(self) -> int:
        return len(self.firsts) - 1

    @property
    def wire_nbytes(self) -> int:
        """Bytes that one rank sends in one reduction: both halves, without its own shard."""
        return 2 * (self.num_ranks - 1) * self.message_nbytes

    def shard(self, rank: int) -> npt.NDArray[np.int64]:
        return self.blocks[self.firsts[rank] : self.firsts[rank + 1]]


def layout_of(segments: Sequence[Segment], num_ranks: int) -> Layout:
    """Lay segments out for num_ranks >= 1. segments: any order, none overlapping."""
    blocks = np.concatenate([_blocks_of(segment) for segment in segments if segment.length])
    nbytes = _nbytes_of(blocks)
    ends = np.cumsum(nbytes)
    # The rank in whose share of the bytes a block's middle lies.
    middle = ends - nbytes // 2
    owners = np.minimum(middle * num_ranks // ends[-1], num_ranks - 1)
    firsts = np.searchsorted(owners, np.arange(num_ranks + 1))
    begins = np.concatenate([[0], ends])[firsts]  # of each shard, in bytes of all
    blocks[:, PLACE] = ends - nbytes - begins[owners]
    return Layout(blocks, tuple(int(first) for first in firsts), int(np.diff(begins).max()))


def _blocks_of(segment: Segment) -> npt.NDArray[np.int64]:
    starts = np.arange(0, segment.length, BLOCK_LEN)
    blocks = np.zeros((len(starts), NUM_COLUMNS), np.int64)
    blocks[:, START] = segment.start + starts
    blocks[:, LENGTH] = np.minimum(BLOCK_LEN, segment.length - starts)
    blocks[:, BITS] = segment.code
    blocks[:, MEMORY] = NOWHERE if segment.memory == NOWHERE else segment.memory + starts
    return blocks


def _nbytes_of(blocks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    nbytes = np.zeros(len(blocks), np.int64)
    for code in Code:
        for length in np.unique(blocks[blocks[:, BITS] == code, LENGTH]):
            chosen = (blocks[:, BITS] == code) & (blocks[:, LENGTH] == length)
            nbytes[chosen] = code.block_nbytes(int(length))
    return nbytes


class Run(NamedTuple):
    """Blocks of one code and length that lie one after the other everywhere: rows of a matrix.

    start, place, memory: the first block's; nbytes: of one block in the message.
    """

    num: int
    start: int
    length: int
    code: Code
    place: int
    memory: int
    nbytes: int


def runs_of(blocks: npt.NDArray[np.int64]) -> list[Run]:
    """Group a shard's blocks, in their order, into as few runs as possible."""
    if not len(blocks):
        return []
    nbytes = _nbytes_of(blocks)
    before, after = blocks[:-1], blocks[1:]
    length = before[:, LENGTH]
    is_remembered = before[:, MEMORY] != NOWHERE
    expected = before.copy()
    expected[:, START] += length
    expected[:, PLACE] += nbytes[:-1]
    expected[:, MEMORY] += length * is_remembered
    follows = (after == expected).all(axis=1)
    firsts = [0, *(np.flatnonzero(~follows) + 1).tolist()]
    runs = []
    for first, end in zip(firsts, [*firsts[1:], len(blocks)], strict=True):
        start, num, bits, place, memory = blocks[first].tolist()
        runs.append(Run(end - first, start, num, Code(bits), place, memory, int(nbytes[first])))
    return runs
