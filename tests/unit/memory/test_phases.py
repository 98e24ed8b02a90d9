"""What becomes of a place: pure decisions from counts."""

import hashlib

import pytest

from stoker.memory import phases
from stoker.memory.phases import (
    EMPTY,
    FREE_S,
    NUM_LEARN,
    NUM_PROVE,
    NUM_TIME,
    NUM_TO_WEIGH,
    Counts,
    Depth,
    Phase,
    added,
    are_enough,
    depth_of,
    look_s,
    may_write,
    must_check,
    packed,
    phase_of,
    unpacked,
)

LEARNT = Counts(
    num_timed=NUM_TIME,
    timed_us=NUM_TIME * 3000,
    num_learnt=NUM_LEARN,
    first_draw=packed((3,)),
)


def test_a_place_is_timed_learns_proves_and_serves():
    assert phase_of(LEARNT._replace(num_timed=NUM_TIME - 1), "") == (Phase.TIMING, "")
    assert phase_of(LEARNT._replace(num_learnt=NUM_LEARN - 1), "") == (Phase.LEARNING, "")
    assert phase_of(LEARNT, "") == (Phase.PROVING, "")
    assert phase_of(LEARNT._replace(num_proven=NUM_PROVE - 1), "") == (Phase.PROVING, "")
    assert phase_of(LEARNT._replace(num_proven=NUM_PROVE), "") == (Phase.SERVING, "")


def test_a_decoder_proves_a_share_of_the_files_that_were_kept_and_more_of_an_earlier_run():
    known = LEARNT._replace(first_draw=EMPTY.first_draw, num_stored=200)
    for num, earlier, phase in (
        (5, 0, Phase.PROVING),
        (6, 0, Phase.SERVING),
        (6, 1, Phase.PROVING),
    ):
        counts = known._replace(num_proven=num, is_proven=earlier)
        assert phase_of(phases.of_files(counts), "") == (phase, "")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"num_differed": 1, "num_proven": 99}, "differed"),
        ({"first_draw": packed((0,))}, "very first step"),
        ({"first_draw": packed((0, 0, 0))}, "very first step"),
        ({"timed_us": NUM_TIME * 30}, "as quickly as read"),
        ({"num_samples": 100, "num_stored": 301, "num_hits": 5}, "from epoch to epoch"),
        ({"num_made": NUM_TO_WEIGH, "made_us": NUM_TO_WEIGH * 10}, "as quickly as read"),
    ],
)
def test_a_place_is_left_alone_and_says_why(changed, why):
    phase, told = phase_of(LEARNT._replace(**changed), "")
    assert phase is Phase.OFF
    assert why in told


@pytest.mark.parametrize(
    ("num_samples", "num_learnt", "num_proven", "num_first"),
    [(0, 16, 32, 4), (24, 4, 2, 1), (200, 6, 6, 1), (800, 16, 24, 4), (10**6, 16, 32, 4)],
)
def test_little_data_needs_few_proofs(num_samples, num_learnt, num_proven, num_first):
    """Three per cent of an epoch."""
    known = LEARNT._replace(num_samples=num_samples)
    assert phases.num_to_learn(known) == num_learnt
    assert phases.num_to_prove(known) == num_proven
    assert phases.num_first(known) == num_first
    dear = known._replace(timed_us=NUM_TIME * 1_000_000)
    assert phases.num_first(dear) == 1
    assert phases.num_to_learn(dear) == (2 if num_samples == 24 else num_learnt)
    again = known._replace(is_proven=1)
    assert phases.num_to_prove(again) == min(NUM_PROVE, max(num_samples, 1))


def test_faster_ways_of_a_library_may_leave_nothing_to_be_gained():
    whole_s = [0.001] * 16
    assert phases.leaves_little([0.0009] * 8, whole_s, nbytes=1000)
    assert not phases.leaves_little([0.0003] * 8, whole_s, nbytes=1000)
    assert not phases.leaves_little([0.0009] * 7, whole_s, nbytes=1000)  # not known yet


def test_a_way_through_a_cut_is_counted_over_all_workers():
    rows = [EMPTY._replace(way=way, num_alike=num) for way, num in ((5, 2), (7, 1), (5, 1))]
    assert (added(rows).way, added(rows).num_alike) == (5, 3)


def test_what_a_worker_has_found_turns_a_place_off():
    assert phase_of(LEARNT, "prints") == (Phase.OFF, "prints")


def test_a_value_that_is_dear_to_make_is_kept():
    dear = LEARNT._replace(num_made=NUM_TO_WEIGH, made_us=NUM_TO_WEIGH * 3000)
    assert phase_of(dear, "")[0] is Phase.PROVING
    large = dear._replace(made_nbytes=NUM_TO_WEIGH * 20_000_000)
    assert phase_of(large, "")[0] is Phase.OFF


@pytest.mark.parametrize(
    ("drew", "path"),
    [
        ((), ()),
        ((3,), (3,)),
        ((3, 0), (3,)),
        ((3, 2), (3, 2)),
        ((3, 2, 0, 0), (3, 2)),
        ((0, 0, 1), (0, 0, 1)),
        ((4000, 1, 2, 3, 4), (4000, 1, 2, 3, 4)),
    ],
)
def test_a_sample_is_remembered_up_to_its_first_draw(drew, path):
    assert unpacked(packed(drew)) == drew
    assert depth_of(LEARNT._replace(first_draw=packed(drew))) == Depth(path)


def test_the_earliest_draw_is_the_smallest_number():
    paths = [(0,), (1, 0), (1, 1, 7), (1, 2), (1,), (2, 3, 1, 4, 1), (2, 3), ()]
    paths[0] = (0, 5)
    assert sorted(map(packed, paths)) == list(map(packed, paths))


def test_depths_that_are_less_end_at_the_functions_start():
    depth, seen = Depth(()), []
    while (depth := depth.less(3)) is not None:
        seen.append(depth.path)
        assert depth_of(LEARNT._replace(first_draw=depth.first_draw)) == depth
    assert seen == [(2,), (1,)]
    depth, seen = Depth((1, 2, 2)), []
    while (depth := depth.less(3)) is not None:
        seen.append(depth.path)
        assert packed((*depth.path, 1)) > depth.first_draw
    assert seen == [(1, 2, 1), (1, 2), (1, 1), (1,)]


def test_audits_grow_rarer():
    keys = [hashlib.blake2b(bytes([k]), digest_size=16).digest() for k in range(64)]
    first = [must_check(0, hit, key) for key in keys for hit in range(4096)]
    later = [must_check(4096, hit, key) for key in keys for hit in range(10240)]
    assert 0.9 < sum(first) / (64 * 64) < 1.1
    assert 0.9 < sum(later) / (64 * 10) < 1.1


def test_each_value_is_audited_in_whatever_order_they_come():
    """64 values in the same order in each epoch, as without shuffling."""
    keys = [hashlib.blake2b(bytes([k]), digest_size=16).digest() for k in range(64)]
    hits = ((64 * epoch + k, key) for epoch in range(9000) for k, key in enumerate(keys))
    assert {key for hit, key in hits if must_check(0, hit, key)} == set(keys)


def test_writing_takes_a_small_share_until_it_has_proved_worth_it():
    for num_proven, frac in ((0, 0.006), (1, 0.15)):
        assert may_write(FREE_S + 10 * frac - 0.001, 10.0, 0.0, num_proven)
        assert not may_write(FREE_S + 10 * frac + 0.001, 10.0, 0.0, num_proven)
    assert may_write(FREE_S + 4.999, 10.0, 0.0, 1, worth=2.0)
    assert not may_write(FREE_S + 4.999, 10.0, 0.0, 1, worth=1.9)
    assert may_write(FREE_S + 0.999, 10.0, 0.0, 0, worth=6.0)
    assert not may_write(FREE_S + 1.001, 10.0, 0.0, 0, worth=6.0)
    assert not may_write(FREE_S + 0.999, 10.0, 0.0, 0, worth=5.9)


@pytest.mark.parametrize(
    ("num_samples", "allowed_s"), [(0, 0.03), (1000, 0.03), (50_000, 0.3), (10**7, 2.0)]
)
def test_a_look_at_a_dataset_takes_a_small_share_of_an_epoch(num_samples, allowed_s):
    assert look_s(LEARNT._replace(num_samples=num_samples)) == pytest.approx(allowed_s)


def test_dear_samples_are_timed_twice_and_cheap_ones_more_often():
    assert not are_enough([0.5])
    assert are_enough([0.5, 0.1])
    assert are_enough([0.6])  # whatever was imported
    assert not are_enough([0.5, 0.0001])
    assert are_enough([0.5, *[0.0001] * (NUM_TIME - 1)])


def place(us, nbytes, num_stored, num_samples=100):
    return EMPTY._replace(
        num_made=20, made_us=20 * us, made_nbytes=20 * nbytes, num_stored=num_stored,
        num_samples=num_samples,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("places", "nbytes"),
    [
        ([place(1000, 10_000, 30)], None),  # its own make no room for it
        ([place(1000, 10_000, 30), place(1000, 1000, 0)], 100 * 1000),
        ([place(1000, 10_000, 30), place(1000, 1000, 40)], 60 * 1000),
        ([place(1000, 10_000, 100), place(1000, 1000, 100)], None),  # nothing is missing
        ([place(1000, 10_000, 30), place(1500, 10_000, 0)], None),  # not dear enough
        ([place(1000, 10_000, 0), place(1000, 1000, 0)], None),  # nothing to remove
        ([], None),
    ],
)  # fmt: skip
def test_room_is_wanted_by_what_costs_most_for_its_bytes(places, nbytes):
    wanted = phases.most_wanted(places)
    assert (None if wanted is None else wanted.nbytes) == nbytes
