"""Defines the number formats (codes) in which gradients travel, and the names users give them.

Pure: standard library only.
"""

from collections.abc import Sequence
from enum import IntEnum

# Elements that share a scale. With 4 bits and 1,024, CGX (arXiv 2111.08617, section 4) kept accuracy.
BLOCK_LEN = 1024
WORD_NBYTES = 4  # what a block begins and ends at a multiple of, in a message


class Code(IntEnum):
    """The format of one block; its value is the number of bits per element.

    FP32: unchanged. BF16: its upper half, rounded to nearest even. INT8, INT4: a whole number of
    -127..127 or -7..7 times 1/127 or 1/7 of the block's largest magnitude, which goes along in
    fp32; zeros and the largest are exact. If an element is not finite, NaN is sent as that
    magnitude.
    """

    INT4 = 4
    INT8 = 8
    BF16 = 16
    FP32 = 32

    @property
    def num_levels(self) -> int:
        """The largest whole number of an integer format: 127 or 7. Raises KeyError for floats."""
        return {Code.INT8: 127, Code.INT4: 7}[self]

    def block_nbytes(self, length: int) -> int:
        """Return the bytes that a block of `length` elements takes in a message, in whole words."""
        scale_nbytes = WORD_NBYTES if self in (Code.INT4, Code.INT8) else 0
        nbytes = -(-length * self // 8)
        return scale_nbytes + -(-nbytes // WORD_NBYTES) * WORD_NBYTES


NAMES = {"fp32": Code.FP32, "bf16": Code.BF16, "8bit": Code.INT8, "4bit": Code.INT4}


def capped(codes: Sequence[Code], cap: Code) -> list[Code]:
    """Return the codes, each with at least as many bits as `cap`."""
    return [max(code, cap) for code in codes]
