"""One screen: what bounds, what it costs, what hurts, what to try; whatever is not known is left out or said."""

from dataclasses import replace

from stoker.doctor.facts import UNTRIED, Costs, Kept
from stoker.doctor.screen import screen
from stoker.reports.metrics import FastPlace
from tests.unit.doctor.examined import FACTS, steps, with_setup


def test_a_screen_is_read_from_above():
    assert (
        screen(FACTS, "python train.py", 1.2, 0.05)
        == """\
train.py:9 as plain PyTorch: 100 samples/s in 100 steps of 10
the limit is data: 60% of a step of 100 ms
  waiting for data 60%, the model 40%
if data cost nothing: 250 samples/s, 2.50x

a sample costs one core 20 ms and is 600 KB in its batch:
  decode (data.py:4)  15 ms  75%
  collate              1 ms   5%

what stoker does of itself:
  images: 96 of 100 made faster, 8 compared
  data.py:12 Photos: remembered, whole samples

  what to try                           samples/s        epoch  needs
  as it is                                    100  1.0x   10 s  0.0033 an epoch
  stoker run --chains auto, remembered        244  2.4x  4.1 s  0.0014 an epoch, 1 GB memory
  stoker run --chains auto               132..167  1.5x  6.7 s  0.0022 an epoch
  stoker run                                  117  1.2x  8.5 s  0.0028 an epoch
  6 CPUs of other machines               200..250  2.2x  4.5 s  0.0019 an epoch, 1.2 Gbit/s
  remembered: the speed once every sample has been made
begin with: stoker run --chains auto -- python train.py
"""
    )


def test_it_fits_a_terminal():
    functions = [(f"{'a_long_name_' * 6}{k} (somewhere.py:{k})", 0.001) for k in range(20)]
    facts = replace(
        with_setup(num_workers=9, prefetch_factor=1), costs=Costs(0.02, 0.02, 10, functions)
    )
    lines = screen(facts, "python train.py").splitlines()
    assert len(lines) <= 34
    assert max(map(len, lines)) <= 80
    assert "13 others" in "\n".join(lines)


def test_ways_of_one_kind_are_added_up():
    ways = [
        FastPlace("JPEG file 4:2:0, some columns -> tensor", 10, 4, 1),
        FastPlace("JPEG file 4:2:0, mirrored -> tensor", 20, 5, 2),
        FastPlace("JPEG file 4:2:0, down first -> tensor", 3, 3, 3, "it differed"),
        FastPlace("JPEG file 4:4:4 -> tensor", 3, 3, 3, "it differed"),
        FastPlace("JPEG file 4:4:4, mirrored -> tensor", 5, 2, 0),
    ]
    trials = [replace(FACTS.trials[0], fast=ways)]
    text = screen(replace(FACTS, trials=trials), "python train.py")
    assert "  JPEG file 4:2:0 -> tensor: 27 of 30 made faster, 9 compared\n" in text
    assert "  JPEG file 4:2:0, down first -> tensor: left alone, it differed\n" in text
    assert "  JPEG file 4:4:4 -> tensor: left alone, it differed\n" in text
    assert "  JPEG file 4:4:4 -> tensor: 5 of 5 made faster, 2 compared\n" in text


def test_data_is_the_limit_from_a_fifth_on():
    text = screen(replace(FACTS, plain=steps(wait_s=2.5)), "python train.py")
    limit = "the limit is data: 25% of a step of 100 ms (from 20% on it counts as the limit)\n"
    assert limit in text


def test_it_begins_with_what_needs_nothing_and_loses_nothing():
    waits = steps(wait_s=0.0, communication_s=6.0, compute_s=4.0)
    alone = replace(with_setup(world_size=2), plain=waits, trials=[], kept=None)
    text = screen(alone, "torchrun train.py")
    assert "--gradients 4bit" in text and "10 samples/s a rank" not in text
    assert "100 samples/s a rank in 100 steps" in text
    assert text.endswith("begin with: stoker probe -- torchrun train.py\n")


def test_other_machines_that_may_slow_it_down_are_not_offered():
    busy = steps(wait_s=0.5)  # of ten seconds
    text = screen(replace(FACTS, plain=busy, free=steps(wait_s=0.0)), "python train.py")
    assert "other machines" not in text


def test_where_nothing_would_gain_it_says_so():
    slow = [replace(trial, rate=50.0) for trial in FACTS.trials]
    busy = steps(wait_s=0.1)
    facts = replace(FACTS, plain=busy, free=steps(wait_s=0.0), trials=slow, kept=None)
    text = screen(facts, "python train.py")
    assert "nothing that stoker does makes this faster: the model is the limit" in text
    assert "begin with" not in text


def test_what_is_left_alone_has_its_reason():
    trials = [replace(trial, why="the dataset is iterable") for trial in FACTS.trials]
    kept = Kept("/work/data.py:12 D", "off", "", "calls time.time", 0.0, 0)
    text = screen(replace(FACTS, trials=trials, kept=kept), "python train.py")
    assert "left to torch by stoker run: the dataset is iterable\n" in text
    assert "data.py:12 D: not remembered: calls time.time" in text
    assert "nothing that stoker does makes this faster: data is the limit" in text
    failed = [replace(trials[0], why="KeyError: 3", is_left=False), FACTS.trials[1]]
    text = screen(replace(FACTS, trials=failed), "python train.py")
    assert "could not be tried: stoker run: KeyError: 3\n" in text
    left = [replace(trials[0], why="its state moves"), FACTS.trials[1]]
    text = screen(replace(FACTS, trials=left), "python train.py")
    assert "its state moves; --chains auto has workers for it" in text


def test_a_trial_that_ended_first_does_not_say_that_nothing_is_remembered():
    for kept, why in (
        (Kept("/work/data.py:12 D", "learning", "", "", 0.0, 0), "the trial ended first"),
        (Kept("samples", UNTRIED, "", "it did not come to an end in 9 s", 0.0, 0), "it did not"),
    ):
        text = screen(replace(FACTS, kept=kept), "python train.py")
        assert f": remembered or not is not known: {why}" in text
        assert "not remembered" not in text


def test_more_gain_than_waiting_is_explained():
    """29% waiting, and 7.45 times as fast without: the workers had the cores that the model wanted."""
    crowded = with_setup(num_workers=2, num_threads=2, cores=2)
    facts = replace(crowded, plain=steps(wait_s=2.9), free=steps(wall_s=10 / 7.45, wait_s=0.0))
    lines = screen(facts, "python train.py").splitlines()
    assert lines[3].endswith("745 samples/s, 7.45x")
    assert lines[4] == "  more than the 29% of waiting: the workers took the model's cores, too"
    for other in (with_setup(num_workers=0), with_setup(num_workers=2, num_threads=2, cores=16)):
        assert "took" not in screen(replace(other, plain=facts.plain, free=facts.free), "a.py")


def test_an_examination_that_ended_early_says_what_it_saw():
    facts = replace(
        FACTS, free=None, costs=None, trials=[], kept=None, why="the script ended after 7 steps"
    )
    text = screen(facts, "python train.py")
    assert text.splitlines()[1] == "the limit is data: 60% of a step of 100 ms"
    assert text.endswith("not all was seen: the script ended after 7 steps\n")
    assert "what to try" not in text
    failed = screen(replace(FACTS, costs=Costs(why="KeyError: 3")), "python train.py")
    assert "what a sample costs is not known: KeyError: 3" in failed


def test_a_dataset_without_a_length_has_no_epoch():
    text = screen(with_setup(num_samples=0, is_iterable=True), "python train.py", 1.0, 1.0)
    assert "epoch" not in text
