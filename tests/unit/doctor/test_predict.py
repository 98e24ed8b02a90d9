"""Predictions are what measured parts add up to, told as a range where they hinder each other."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.doctor.facts import Kept
from stoker.doctor.predict import GRADIENT_BITS, enough, predictions, step_s
from stoker.gradients.codes import NAMES
from tests.unit.doctor.examined import FACTS, steps, with_setup


def found(facts=FACTS):
    return {each.name: each for each in predictions(facts)}


def test_the_slowest_part_decides():
    # busy 0.04 s; the batch at 120/s 0.083 s; both of them on four cores (2 * 0.083 + 0.04) / 4
    best_s, worst_s = step_s(FACTS, 120.0, 2 * 10 / 120)
    assert best_s == pytest.approx(10 / 120)
    assert worst_s == pytest.approx(10 / 120 / 0.95)
    # at 10,000/s the model: 0.04 s
    assert step_s(FACTS, 10_000.0, 0.004)[0] == pytest.approx(0.04)


def test_parts_that_take_as_long_hinder_each_other():
    best_s, worst_s = step_s(FACTS, 240.0, 2 * 10 / 240)  # batch 0.0417 s beside 0.04
    assert worst_s == pytest.approx(1.2 * best_s / 0.95)


def test_on_shared_cores_the_work_of_both_is_added():
    facts = with_setup(cores=2)
    best_s, _ = step_s(facts, 200.0, 0.1)  # (0.1 + 0.04) / 2
    assert best_s == pytest.approx(0.07)


def test_the_fastest_comes_first_and_says_what_it_needs():
    ranked = predictions(FACTS)
    assert [each.num_away for each in ranked] == [0, 0, 0, 6]  # which need other machines
    here = [each.rate for each in ranked[:-1]]
    assert here == sorted(here, reverse=True)
    remembered = found()["stoker run --chains auto, remembered"]
    assert remembered.needs == "1 GB memory"
    assert remembered.high == pytest.approx(250)
    away = found()["6 CPUs of other machines"]
    assert (away.num_away, away.flags) == (6, "--cluster ADDRESS --workers 6")
    assert away.needs == "1.2 Gbit/s"
    assert away.high == pytest.approx(250)


def test_of_samples_that_have_no_room_only_a_part_is_remembered():
    kept = Kept("p", "serving", "d", "", 1e6, 500_000_000, 10_000.0)  # half of them
    one = found(replace(FACTS, kept=kept))["stoker run --chains auto, remembered"]
    # 2 / (1/10000 + 1/200): 392/s, beside a model of 250
    assert one.high == pytest.approx(250)
    assert one.needs == "1 GB memory: 500 MB unless --cache-memory"


def test_what_is_left_to_torch_or_not_remembered_is_not_predicted():
    trials = [replace(trial, why="the dataset is iterable") for trial in FACTS.trials]
    assert found(replace(FACTS, trials=trials)) == {}  # nor would other machines be of use
    alone = replace(FACTS, kept=replace(FACTS.kept, phase="off", why="calls time.time"))
    assert not [name for name in found(alone) if "remembered" in name]


def test_without_free_data_nothing_is_known():
    assert predictions(replace(FACTS, free=None)) == []
    assert predictions(replace(FACTS, free=replace(steps(), num=0))) == []


@given(st.floats(1e-5, 10), st.floats(1, 1e5))
def test_enough_is_enough(sample_s, rate):
    num = enough(sample_s, rate)
    assert num >= 1
    assert num / sample_s >= 1.09 * rate or num == 1


@given(st.floats(1, 1e6), st.floats(0, 100))
def test_a_range_is_one(data_rate, work_s):
    best_s, worst_s = step_s(FACTS, data_rate, work_s)
    assert 0 < best_s < worst_s < 1.3 * best_s


def test_an_epoch_that_is_over_soon_waits_for_its_workers():
    trials = [replace(trial, start_s=1.0) for trial in FACTS.trials]
    num = FACTS.setup.num_samples
    before, after = found()["stoker run"], found(replace(FACTS, trials=trials))["stoker run"]
    for old, new in ((before.low, after.low), (before.high, after.high)):
        assert num / new == pytest.approx(num / old + 1.0)
    short = with_setup(num_samples=0)  # it does not say: nobody knows when it is over
    assert found(replace(short, trials=trials))["stoker run"] == found(short)["stoker run"]


def test_the_codec_needs_a_thinner_link():
    costs = replace(FACTS.costs, coded_frac=0.25)
    away = found(replace(FACTS, costs=costs))["6 CPUs of other machines"]
    assert (away.needs, away.note) == (
        "1.2 Gbit/s",
        "the lossless codec makes 0.3 of the 1.2 Gbit/s",
    )
    costs = replace(FACTS.costs, coded_frac=0.99)
    assert found(replace(FACTS, costs=costs))["6 CPUs of other machines"].note == ""


def test_compressed_gradients_bring_nothing_or_what_their_bytes_take():
    plain = steps()
    split = plain.split._replace(communication_s=plain.wall_s / 2)
    facts = replace(with_setup(world_size=2), plain=replace(plain, split=split))
    ranked = found(facts)
    assert {name for name in ranked if "gradients" in name} == {
        "--gradients bf16", "--gradients 8bit", "--gradients 4bit",
    }  # fmt: skip
    four = ranked["--gradients 4bit"]
    assert four.low == pytest.approx(plain.rate)
    assert four.high == pytest.approx(plain.rate / (1 - 0.5 * 7 / 8))
    assert found(replace(facts, setup=replace(facts.setup, world_size=1))).keys() == found().keys()


def test_bits_of_an_element_are_the_codes_own():
    for name, bits in GRADIENT_BITS.items():
        assert NAMES[name] == bits
