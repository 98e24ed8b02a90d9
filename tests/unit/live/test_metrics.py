"""Metrics for Prometheus, read again by its own parser: names and units by convention."""

import re

import pytest
from tests.unit.live.feeds import PLACE, a_feed, a_tick

from stoker.live.metrics import metrics_of

parser = pytest.importorskip("prometheus_client.parser")
UNITS = ("_seconds", "_bytes", "_ratio")


def families(state):
    text, kind = metrics_of(state)
    assert kind.startswith("text/plain")
    return {family.name: family for family in parser.text_string_to_metric_families(text.decode())}


def test_names_types_and_units_are_prometheus_own():
    for name, family in families(a_feed(5).state).items():
        assert re.fullmatch(r"stoker_[a-z_]+", name)
        assert family.documentation.endswith(".")
        for sample in family.samples:
            assert sample.name == (f"{name}_total" if family.type == "counter" else name)
        is_amount = any(
            word in family.documentation.lower() for word in ("time", "bytes", "how long")
        )
        assert not is_amount or name.endswith((*UNITS, "_ended")), name


def test_numbers_are_the_runs():
    found = families(a_feed(5).state)
    (batches,) = found["stoker_loader_batches"].samples
    assert (batches.value, batches.labels) == (50, {"loader": PLACE, "rank": ""})
    parts = {s.labels["part"]: s.value for s in found["stoker_loader_step_seconds"].samples}
    assert parts["data"] == pytest.approx(5 / 4)
    assert parts["compute"] == pytest.approx(5 * 0.75)  # all that was looked at
    assert found["stoker_host_cpu_ratio"].samples[0].value == 0.5
    assert found["stoker_run_ended"].samples[0].value == 0


def test_two_loaders_of_one_line_are_told_apart():
    feed = a_feed(1)
    state = feed.state | {"loaders": feed.state["loaders"] * 2}
    labels = [s.labels["loader"] for s in families(state)["stoker_loader_batches"].samples]
    assert labels == [PLACE, f"{PLACE} #2"]


def test_an_end_is_told():
    feed = a_feed(2)
    feed.take(a_tick(3), "exit")
    assert families(feed.state)["stoker_run_ended"].samples[0].value == 1


def test_before_the_first_batch_there_are_none():
    assert families({}) == {}
