"""Which bytes of which message a block has."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.gradients.blocks.layout import (
    BITS,
    LENGTH,
    MEMORY,
    NOWHERE,
    PLACE,
    START,
    Segment,
    layout_of,
)
from stoker.gradients.codes import BLOCK_LEN, Code

LENGTHS = st.integers(1, 3 * BLOCK_LEN + 5)
SEGMENTS = st.lists(st.tuples(LENGTHS, st.sampled_from(list(Code)), st.booleans()), min_size=1)


def segments_of(drawn):
    segments, start, memory = [], 0, 0
    for length, code, remembers in drawn:
        segments.append(Segment(start, length, code, memory if remembers else NOWHERE))
        start += length
        memory += length if remembers else 0
    return segments


@given(SEGMENTS, st.integers(1, 5))
def test_every_element_is_in_one_block_and_every_block_in_one_shard(drawn, num_ranks):
    segments = segments_of(drawn)
    layout = layout_of(segments, num_ranks)
    found = np.zeros(sum(segment.length for segment in segments), int)
    for rank in range(num_ranks):
        end = 0
        for block in layout.shard(rank):
            found[block[START] : block[START] + block[LENGTH]] += 1
            assert block[PLACE] == end  # one after the other
            assert 1 <= block[LENGTH] <= BLOCK_LEN
            end += Code(block[BITS]).block_nbytes(int(block[LENGTH]))
        assert end <= layout.message_nbytes
    assert (found == 1).all()
    assert layout.firsts[0] == 0 and layout.firsts[-1] == len(layout.blocks)


@given(SEGMENTS)
def test_a_block_has_its_segments_code_and_its_place_in_the_memory(drawn):
    segments = segments_of(drawn)
    blocks = layout_of(segments, 2).blocks
    for segment in segments:
        own = blocks[(blocks[:, START] >= segment.start) & (blocks[:, START] < segment.start + segment.length)]  # fmt: skip
        assert (own[:, BITS] == segment.code).all()
        if segment.memory == NOWHERE:
            assert (own[:, MEMORY] == NOWHERE).all()
        else:
            assert (own[:, MEMORY] - segment.memory == own[:, START] - segment.start).all()


@given(SEGMENTS, st.integers(1, 5))
def test_shards_differ_by_less_than_two_blocks(drawn, num_ranks):
    layout = layout_of(segments_of(drawn), num_ranks)
    nbytes = sum(Code(b[BITS]).block_nbytes(int(b[LENGTH])) for b in layout.blocks)
    most = max(Code(b[BITS]).block_nbytes(int(b[LENGTH])) for b in layout.blocks)
    assert layout.message_nbytes <= nbytes / num_ranks + most


@pytest.mark.parametrize("code", [Code.INT4, Code.INT8])
@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
def test_a_rank_sends_what_the_formula_says(code, num_ranks):
    num = 25_000_000
    ratio = (code + 32 / BLOCK_LEN) / 32
    formula = 2 * (num_ranks - 1) / num_ranks * 4 * num * ratio
    assert layout_of([Segment(0, num, code)], num_ranks).wire_nbytes == pytest.approx(formula, 2e-3)
