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


STATS = {
    "remote_nbytes": 10, "peer_nbytes": 20, "memory_nbytes": 30, "disk_nbytes": 4, "num_requests": 5,
    "num_retries": 1, "wait_s": 1.5,
}  # fmt: skip


def told_storage(mounts, away):
    return {"kind": "storage", "storage": {**STATS, "mounts": mounts, "away": away}}


def test_what_was_read_of_mounts_is_told_of_here_and_of_other_machines():
    feed = a_feed(1)
    assert feed.state["storage"] == [] and "stoker_storage_bytes" not in families(feed.state)
    away = {**STATS, "remote_nbytes": 70}
    feed.take(a_tick(2, lines=[told_storage([["/data", "s3://a"]], away)]))
    found = families(feed.state)
    nbytes = {
        (s.labels["machines"], s.labels["where"]): s.value
        for s in found["stoker_storage_bytes"].samples
    }
    assert nbytes == {
        ("here", "origin"): 10, ("here", "peers"): 20, ("here", "cache"): 34,
        ("others", "origin"): 70, ("others", "peers"): 20, ("others", "cache"): 34,
    }  # fmt: skip
    assert [s.value for s in found["stoker_storage_requests"].samples] == [5, 5]
    assert [s.value for s in found["stoker_storage_wait_seconds"].samples] == [1.5, 1.5]


def test_a_run_whose_files_are_other_machines_alone_says_nothing_of_its_own():
    feed = a_feed(1)
    feed.take(a_tick(2, lines=[told_storage([], STATS)]))
    assert [row["machines"] for row in feed.state["storage"]] == ["others"]
    feed.take(a_tick(3, lines=[told_storage([["/data", "s3://a"]], None)]))
    assert [row["machines"] for row in feed.state["storage"]] == ["here"]


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
