"""Scalars for TensorBoard, read again by its own reader."""

import pytest
from tests.unit.live.feeds import ABOUT, PLACE, a_feed, a_tick

from stoker.live.scalars import EVERY_S, Scalars, points_of

accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def test_points_are_of_the_time_since_the_one_before():
    before, after = a_feed(10).state, a_feed(12).state
    points = points_of(before, after)
    assert points[f"stoker/{PLACE}/samples_per_second"] == pytest.approx(80)
    assert points[f"stoker/{PLACE}/share_data"] == pytest.approx(0.25)
    assert points["stoker/batches_ready"] == 2.0
    shares = sum(value for tag, value in points.items() if "/share_" in tag)
    assert shares == pytest.approx(1)


def test_nothing_new_gives_no_share():
    state = a_feed(10).state
    assert not any("/share_" in tag for tag in points_of(state, state))


def test_tensorboard_reads_what_is_written(tmp_path):
    scalars = Scalars(tmp_path, ABOUT | {"rank": 3, "pid": 7})
    feed = a_feed(1)
    for second in range(2, 36):
        feed.take(a_tick(second))
        scalars.write(feed.state)
    feed.take(a_tick(36), "exit")
    scalars.write(feed.state)
    scalars.close()
    (folder,) = tmp_path.iterdir()
    assert folder.name == "stoker-1800000000-7-rank3"
    found = accumulators.EventAccumulator(str(folder)).Reload()
    events = found.Scalars(f"stoker/{PLACE}/samples_per_second")
    assert [event.step for event in events] == [100, 200, 300, 360]
    assert events[0].wall_time == ABOUT["began_unix_s"] + EVERY_S
    assert [event.value for event in events] == pytest.approx([80] * 4)
