"""Facts of a made-up examination, to be changed by a test."""

from dataclasses import replace

from stoker.doctor.facts import Costs, Facts, Kept, Setup, Steps, Trial
from stoker.reports.metrics import FastPlace
from stoker.stalls.split import Split

SETUP = Setup(
    place="train.py:9", batch_size=10, num_workers=2, num_samples=1000, pin_memory=True, persistent_workers=True,
    context="fork", is_iterable=False, cores=4, num_threads=1, has_device=False, world_size=1, prefetch_factor=2,
)  # fmt: skip


def steps(wall_s=10.0, num=100, wait_s=6.0, cpu_s=4.0, **split):
    parts = (
        dict.fromkeys(Split._fields, 0.0) | {"data_s": wait_s, "compute_s": wall_s - wait_s} | split
    )
    return Steps(num, 10 * num, wall_s, wait_s, cpu_s, Split(**parts))


FACTS = Facts(
    SETUP,
    first_wait_s=0.1,
    plain=steps(),  # 100 samples/s
    free=steps(wall_s=4.0, wait_s=0.0),  # 250
    costs=Costs(0.02, 0.02, 600_000, [("decode (data.py:4)", 0.015), ("collate", 0.001)]),
    trials=[
        Trial("stoker run", "", 2, 120.0, fast=[FastPlace("images", 100, 8, 4)]),
        Trial("stoker run --chains auto", "--chains auto", 4, 200.0),
    ],
    kept=Kept(
        "/work/data.py:12 Photos", "serving", "whole samples", "", 1e6, 4_000_000_000, 10_000.0
    ),
)


def with_setup(**changed):
    return replace(FACTS, setup=replace(SETUP, **changed))
