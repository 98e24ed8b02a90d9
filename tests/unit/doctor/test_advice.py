"""What bounds a script, and which settings hurt: each by its sign, none without."""

from dataclasses import replace

import pytest

from stoker.doctor.advice import bound_of, hurting
from tests.unit.doctor.examined import FACTS, steps, with_setup

BOUNDS = {
    "data": {"data_s": 2.5, "compute_s": 7.5},
    "the model": {"data_s": 1.0, "compute_s": 6.0, "other_s": 3.0},
    "copies to the device": {"data_s": 1.0, "copy_s": 6.0, "compute_s": 3.0},
    "communication with other ranks": {"data_s": 0.0, "communication_s": 6.0, "compute_s": 4.0},
    "Python in the training loop": {"data_s": 0.0, "other_s": 6.0, "compute_s": 4.0},
    "the training loop": {"data_s": 0.0, "unseen_s": 10.0, "compute_s": 0.0},
}


@pytest.mark.parametrize(("bound", "parts"), BOUNDS.items(), ids=BOUNDS)
def test_the_limit_is_the_largest_part(bound, parts):
    split = steps(wait_s=0.0, **parts).split
    assert bound_of(split)[0] == bound


def test_a_script_without_a_fault_has_none():
    assert hurting(FACTS) == []


copies = steps(wait_s=0.5, copy_s=3.0, compute_s=6.5)
short = steps(wall_s=0.1, wait_s=0.0)
SIGNS = {
    "num_workers=0": with_setup(num_workers=0, prefetch_factor=0),
    "num_workers=9 on 4 cores": with_setup(num_workers=9),
    "4 threads of torch's and 2 workers": replace(with_setup(num_threads=4), plain=steps(cpu_s=20.0)),
    "OpenCV takes 4 threads": with_setup(image_threads=4),
    "pin_memory=False": replace(with_setup(has_device=True, pin_memory=False), plain=copies),
    "workers start anew": replace(with_setup(persistent_workers=False), first_wait_s=3.0),
    "workers by spawn": with_setup(context="spawn"),
    "unpickles the dataset (3 GB)": with_setup(context="spawn", pickled_nbytes=3_000_000_000),
    "2 workers copy 2 GB of lists by reading: not under stoker on Python 3.12": with_setup(listed_nbytes=10**9),
    "by reading: not under stoker run": with_setup(listed_nbytes=10**9, are_shared=True),
    "batches of 1": with_setup(batch_size=1),
    "prefetch_factor=1": with_setup(prefetch_factor=1),
    "1 ms a step of 10": replace(FACTS, plain=short),
    "stoker probe": replace(with_setup(world_size=4), plain=steps(wait_s=0.0, communication_s=3.0, compute_s=7.0)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("sign", "facts"), SIGNS.items(), ids=[sign.replace("/", "") for sign in SIGNS]
)
def test_a_setting_that_hurts_is_named(sign, facts):
    (line,) = hurting(facts)
    assert sign in line
    assert len(line) <= 78


def test_what_does_not_hurt_is_not_named():
    assert hurting(with_setup(has_device=True)) == []
    assert hurting(with_setup(batch_size=1, is_batched=False)) == []  # by the dataset, then
    assert hurting(replace(with_setup(batch_size=1), plain=steps(wait_s=0.1))) == []
    assert hurting(with_setup(num_workers=0, is_iterable=True, prefetch_factor=0)) == []
    assert hurting(with_setup(num_workers=0, context="spawn", is_iterable=True)) == []
    assert hurting(with_setup(persistent_workers=False)) == []
    assert hurting(with_setup(num_threads=4)) == []  # they sleep
    waits = replace(FACTS.costs, cpu_s=0.001)  # as for a disk
    assert hurting(replace(with_setup(num_workers=9), costs=waits)) == []
