"""Bytes of compressed gradients as the kernel counts them, on links between network namespaces."""

import pytest
from benchmarks import ranks

from stoker.gradients.codes import BLOCK_LEN, Code
from tests.needs import NEEDS_NAMESPACES

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("cluster"), NEEDS_NAMESPACES]
NUM_RANKS, NUM, TIMES = 3, 8_000_000, 4
PATIENCE_S = 120.0


@pytest.mark.parametrize("code", [Code.INT4, Code.INT8])
def test_a_rank_sends_what_the_formula_says(code):
    script = "tests/process/scripts/exchanges.py"
    with ranks.links(NUM_RANKS):
        running = ranks.start(NUM_RANKS, [script, code.name, str(TIMES)])
        said = [int(each.communicate(timeout=PATIENCE_S)[0]) for each in running]
        sent = [ranks.sent_nbytes(rank) for rank in range(NUM_RANKS)]
    ratio = (code + 32 / BLOCK_LEN) / 32
    formula = 2 * (NUM_RANKS - 1) / NUM_RANKS * 4 * NUM * ratio * TIMES
    for each, counted in zip(said, sent, strict=True):
        assert each == pytest.approx(formula, rel=0.001)
        assert counted == pytest.approx(formula, rel=0.02)
