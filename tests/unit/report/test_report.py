"""From rows in a file to the report and its summary."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.report.log import MAX_LOADERS, RunLog
from stoker.report.metrics import VERSION, LoaderRecord, RunRecord, as_json, layout_of
from stoker.report.summary import MAX_LINES, readable_nbytes, summary


@pytest.fixture
def log():
    made = RunLog()
    yield made
    made.close()


def loader(number=0, **values):
    values = {"place": f"train.py:{number}", "offloaded": True, "reasons": [], "chains": 2} | values
    return LoaderRecord(number, **values)


def declare(log, *loaders):
    for record in loaders:
        log.append(
            "loader", number=record.number, place=record.place, offloaded=record.offloaded,
            reasons=record.reasons, chains=record.chains,
        )  # fmt: skip


def report(*loaders, ended="exit", **run):
    return as_json(RunRecord(**run), list(loaders), ended)


# -- the log -----------------------------------------------------------------------------------


def test_another_reader_of_the_file_reads_what_was_written(log):
    one, other = loader(0), loader(1, offloaded=False, reasons=["no"])
    log.append("settings", pid=7, quiet=True)
    declare(log, one, other)
    one.num_batches, one.wait_s, other.num_samples = 5, 1.5, 9
    log.append("note", number=1, text="a note")
    log.append("digest", number=0, sha256="ab")
    run = RunRecord(wall_s=3.0, cpu_s=1.0, num_lost=2, num_slots=4)
    log.put_loader(one)
    log.put_loader(other)
    log.put_run(run)
    reader = RunLog(os.dup(log.fd))
    one.digests, other.notes = ["ab"], ["a note"]
    assert reader.read() == ({"pid": 7, "quiet": True}, run, [one, other])
    reader.close()


def test_a_torn_last_line_is_left_out(log):
    log.append("settings", pid=7)
    declare(log, loader(0))
    log.append("digest", number=0, sha256="ab")
    end = os.fstat(log.fd).st_size
    log.append("digest", number=0, sha256="cd")
    for size in range(end, os.fstat(log.fd).st_size):
        os.truncate(log.fd, size)
        settings, _, (found,) = log.read()
        assert (settings, found.digests) == ({"pid": 7}, ["ab"])


def test_a_log_that_was_only_begun_reads_as_nothing(log):
    assert log.read() == ({}, RunRecord(), [])


def test_done_is_seen_by_every_reader(log):
    reader = RunLog(os.dup(log.fd))
    assert not reader.is_done
    log.mark_done()
    assert reader.is_done
    reader.close()


def test_the_last_loader_that_fits_spoils_no_line(log):
    log.append("settings", pid=7)
    record = loader(MAX_LOADERS - 1)
    record.num_batches = 2**40
    declare(log, record)
    log.put_loader(record)
    settings, _, (found,) = log.read()
    assert settings == {"pid": 7} and found == record


@given(st.integers(0, 2**62), st.integers(0, 2**62), st.floats(0, 1e9), st.floats(0, 1e9))
def test_rows_survive_the_file(num_batches, raw_nbytes, wait_s, busy_s):
    record = loader(
        num_batches=num_batches, raw_nbytes=raw_nbytes, wait_s=wait_s, busy_s=busy_s, num_copied=3
    )
    found = loader()
    found.read_row(record.row())
    assert found == record
    run = RunRecord(wall_s=wait_s, cpu_s=busy_s, peak_rss_nbytes=raw_nbytes, num_slots=num_batches)
    seen = RunRecord()
    seen.read_row(run.row())
    assert seen == run


def test_a_row_is_64_bytes():
    assert layout_of(LoaderRecord).row.size == 64


# -- the report ----------------------------------------------------------------------------------

KEYS = {
    "version", "ended", "rank", "ranks_without_stoker", "wall_s", "loaders", "workers", "gradients",
    "trainer", "cost",
}  # fmt: skip
LOADER_KEYS = {
    "place", "offloaded", "reasons", "notes", "chains", "num_batches", "num_samples", "wait_s",
    "busy_s", "wire_nbytes", "raw_nbytes", "num_copied", "num_away",
    "batches_sha256",
}  # fmt: skip


def test_the_schema_has_these_keys_and_is_json():
    made = report(loader(0, digests=["ab"]))
    assert json.loads(json.dumps(made)) == made
    assert set(made) == KEYS and made["version"] == VERSION
    (one,) = made["loaders"]
    assert set(one) == LOADER_KEYS and one["batches_sha256"] == ["ab"]
    assert set(made["workers"]) == {
        "started", "lost", "replayed", "hedged", "slots", "away_hours",
    }  # fmt: skip
    assert set(made["gradients"]) == {"scheme", "wire_nbytes", "raw_nbytes"}
    assert set(made["trainer"]) == {"cpu_s", "peak_rss_nbytes"}


# -- the summary ---------------------------------------------------------------------------------

counts = st.integers(0, 10**9)
seconds = st.floats(0, 1e6)
loaders = st.builds(
    LoaderRecord,
    number=st.just(0),
    place=st.sampled_from(["train.py:3", "a/b.py:10"]),
    offloaded=st.booleans(),
    reasons=st.lists(st.just("a reason"), max_size=2),
    chains=st.integers(1, 64),
    num_batches=counts, num_samples=counts, wait_s=seconds, busy_s=seconds,
    raw_nbytes=counts, num_copied=st.integers(0, 5),
    notes=st.lists(st.just("a note"), max_size=3),
)  # fmt: skip


@given(
    st.lists(loaders, max_size=40), st.builds(RunRecord, wall_s=seconds, num_lost=st.integers(0, 3))
)
def test_the_summary_is_short_and_every_line_says_who_speaks(found, run):
    text = summary(as_json(run, found, "exit"))
    assert text.endswith("\n")
    lines = text.splitlines()
    assert 1 <= len(lines) <= MAX_LINES <= 12
    assert all(line.startswith("stoker: ") for line in lines)


def test_what_is_left_out_is_counted():
    lines = summary(report(*map(loader, range(20)))).splitlines()
    assert len(lines) == MAX_LINES
    shown = [line for line in lines if "train.py:" in line]
    (more,) = [line for line in lines if " more " in line]
    assert f"and {20 - len(shown)} more" in more and "--report-json" in more


def test_a_run_with_nothing_to_gain_is_told_so():
    text = summary(report(loader(wait_s=0.1), wall_s=100.0))
    assert "data loading was not the bottleneck" in text


def test_a_run_that_waited_with_slots_to_spare_is_told_of_chains():
    text = summary(report(loader(wait_s=50.0), wall_s=100.0, num_slots=8))
    assert "2 workers, where 8 could run; try --chains auto" in text
    assert "waited 50.0 s for data (50%)" in text


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"offloaded": False, "reasons": ["num_workers=0", "x"]}, "left to torch: num_workers=0\n"),
        ({"offloaded": False}, "left to torch: asked to\n"),
        (
            {"num_away": 1234, "wire_nbytes": 3 << 20},
            "1,234 batches made on other machines, 3.0 MiB on the way",
        ),
        ({"num_copied": 1234}, "1,234 copied: the script holds more than --memory"),
        ({"notes": ["kept to its chains: it draws"]}, "; kept to its chains: it draws\n"),
        ({"raw_nbytes": 3 << 30}, "3.0 GiB"),
    ],
)
def test_a_loaders_line_says_what_became_of_it(values, said):
    assert said in summary(report(loader(**values)))


def test_lost_workers_and_the_end_are_told():
    text = summary(report(loader(), ended="SIGTERM", num_lost=2, num_replayed=5))
    assert "ended by SIGTERM" in text
    assert "2 workers died" in text and "recomputed at most 5 batches" in text


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB"),
     (5 << 50, "5120.0 TiB")],
)  # fmt: skip
def test_sizes_are_read_in_binary_units(nbytes, text):
    assert readable_nbytes(nbytes) == text
