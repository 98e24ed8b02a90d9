"""What `stoker probe` prints, to the letter, and when buckets that follow each other are done."""

import pytest

from stoker.gradients.gate.survey import left_s
from stoker.gradients.gate.table import Copy, Measured, Scheme, Size, Step, as_table, shares_of

SIZES = (Size(16 << 10, 1e-3, 5e-4, 5e-4), Size(64 << 10, 2.5e-3, 1.25e-3, 1.25e-3))
STEP = Step(step_s=1.5, data_s=0.1, forward_s=0.1, backward_s=0.2, comm_s=1.2, overlap_s=0.15)
SCHEMES = (Scheme("8bit", 38_000_000, 0.75), Scheme("4bit", 19_000_000, 0.5))
FOUND = Measured("gloo", "cpu", 4, SIZES, (), 25_000_000, 100_000_000, 5, STEP, SCHEMES)

EXPECTED = """\
links of 4 ranks, gloo on cpu; rates: what one rank sends; fitted: latency and rate
  buffer  all_reduce             all_to_all             all_gather
  16 KiB        1 ms  24.6 MB/s      0.5 ms  24.6 MB/s      0.5 ms  24.6 MB/s
  64 KiB      2.5 ms  39.3 MB/s     1.25 ms  39.3 MB/s     1.25 ms  39.3 MB/s
  fitted      0.5 ms  49.2 MB/s     0.25 ms  49.2 MB/s     0.25 ms  49.2 MB/s

no copies between host and device: the model is on the CPU

a step of Net, 25,000,000 parameters in 5 buckets: 1.5 s
  waits for data 100 ms, forward 100 ms, backward 200 ms, waits for gradients 1.05 s, the rest 50 ms

  --gradients  a rank sends             a step  times as fast
       (none)       143 MiB    1.5 s, measured
         8bit      36.2 MiB  750 ms, estimated           2.00
         4bit      18.1 MiB  500 ms, estimated           3.00

bound by: waits for gradients (70% of a step); try: stoker run --gradients 4bit (with loss: \
docs/gradients.md)
"""


def test_the_whole_table():
    assert as_table("Net", FOUND) == EXPECTED


def test_a_step_that_waits_for_data_is_told_what_is_for_that():
    waiting = FOUND._replace(step=STEP._replace(data_s=1.1, comm_s=0.15))
    waiting = waiting._replace(schemes=(Scheme("4bit", 1, 1.45),))
    assert as_table("Net", waiting).endswith(
        "bound by: waits for data (73% of a step); stoker run is made for that; fewer bits would gain "
        "little here\n"
    )


def test_copies_are_told_where_there_is_an_accelerator():
    text = as_table("Net", FOUND._replace(device="cuda", copies=(Copy(1 << 20, 1e-4, 5e-5),)))
    assert "  1 MiB          0.1 ms  10.5 GB/s         0.05 ms  21 GB/s\n" in text


@pytest.mark.parametrize(
    ("ready_s", "costs_s", "left"),
    [
        ([0.0], [2.0], 2.0),
        ([0.0, 1.0], [0.5, 0.5], 0.5),  # the first is over by then
        ([0.0, 1.0], [3.0, 0.5], 2.5),  # the second waits for the first
        ([0.0, 1.0, 1.0], [0.1, 0.5, 0.25], 0.75),
    ],
)
def test_buckets_are_averaged_one_after_the_other_each_when_it_is_ready(ready_s, costs_s, left):
    assert left_s(ready_s, costs_s) == pytest.approx(left)


def test_the_parts_of_a_step_are_its_whole_or_more():
    assert sum(shares_of(STEP).values()) == pytest.approx(STEP.step_s)
    assert shares_of(STEP._replace(forward_s=9.0))["the rest"] == 0.0
