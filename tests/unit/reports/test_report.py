"""From rows in a file to the report and its summary."""

import json
import os
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.reports.log import MAX_LOADERS, NUM_LOOKS, RunLog
from stoker.reports.metrics import (
    DECODED,
    KEEPS_NUMBER,
    ONLY_OWN,
    VERSION,
    LoaderRecord,
    Remembered,
    RememberedOnDisk,
    RememberedPlace,
    RunRecord,
    as_json,
)
from stoker.reports.summary import MAX_LINES, readable_nbytes, summary
from stoker.stalls.split import Seen


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


def test_a_reader_sees_each_look_once(log):
    reader = RunLog(os.dup(log.fd))
    assert reader.new_looks() == []
    record = loader(3)
    for at_s in (1.0, 2.5):
        record.num_batches += 2
        log.put_look(at_s, record)
    seen = reader.new_looks()
    assert [(look.at_s, look.number, look.num_batches) for look in seen] == [
        (1.0, 3, 2),
        (2.5, 3, 4),
    ]
    assert reader.new_looks() == []
    log.put_look(3.0, record)
    assert [look.at_s for look in reader.new_looks()] == [3.0]
    reader.close()


def test_a_look_says_what_was_seen(log):
    reader, record = RunLog(os.dup(log.fd)), loader(0)
    for k, name in enumerate(Seen._fields):
        setattr(record, name, k + 0.5)
    log.put_look(1.0, record)
    (look,) = reader.new_looks()
    assert look.seen == Seen(0.5, 1.5, 2.5, 3.5, 4.5, 5.5)
    reader.close()


@pytest.mark.parametrize("num", [NUM_LOOKS - 1, NUM_LOOKS, NUM_LOOKS + 1, 3 * NUM_LOOKS + 7])
def test_of_more_looks_than_the_ring_holds_the_newest_are_there(log, num):
    reader, record = RunLog(os.dup(log.fd)), loader(0)
    for k in range(num):
        record.num_batches = k + 1
        log.put_look(float(k), record)
    seen = [look.num_batches for look in reader.new_looks()]
    assert seen == list(range(max(0, num - NUM_LOOKS + 1) + 1, num + 1))
    log.append("note", number=0, text="the ring spoils no line")
    assert [line["text"] for line in reader.new_lines()] == ["the ring spoils no line"]
    reader.close()


def test_a_reader_sees_each_line_once(log):
    reader = RunLog(os.dup(log.fd))
    log.append("note", number=0, text="a")
    assert [line["text"] for line in reader.new_lines()] == ["a"]
    log.append("note", number=0, text="b")
    assert [line["text"] for line in reader.new_lines()] == ["b"]
    assert reader.new_lines() == []
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


# -- the report ----------------------------------------------------------------------------------

KEYS = {
    "version", "ended", "rank", "ranks_without_stoker", "wall_s", "loaders", "workers", "gradients",
    "trainer", "cost", "cluster", "cache", "fast", "storage",
}  # fmt: skip
LOADER_KEYS = {
    "place", "offloaded", "reasons", "notes", "chains", "num_batches", "num_samples", "num_iters",
    "wait_s", "first_wait_s", "busy_s", "wire_nbytes", "raw_nbytes", "num_copied", "num_away",
    "seen", "batches_sha256", "dataset",
}  # fmt: skip


def test_the_schema_has_these_keys_and_is_json():
    made = report(loader(0, digests=["ab"]))
    assert json.loads(json.dumps(made)) == made
    assert set(made) == KEYS and made["version"] == VERSION
    (one,) = made["loaders"]
    assert set(one) == LOADER_KEYS and one["batches_sha256"] == ["ab"]
    assert set(made["workers"]) == {
        "started", "lost", "replayed", "hedged", "slots", "away_hours", "files_sent_nbytes",
    }  # fmt: skip
    assert set(one["seen"]) == set(Seen._fields)
    assert set(made["gradients"]) == {"scheme", "wire_nbytes", "raw_nbytes"}
    assert set(made["trainer"]) == {
        "cpu_s", "peak_rss_nbytes", "cores", "seen_wait_s", "seen_wait_cpu_s",
    }  # fmt: skip


PLACE = RememberedPlace(
    place="data.py:12 Photos", phase="serving", depth="whole samples", why="", num_samples=1000,
    num_hits=1500, num_misses=1200, num_stored=500, num_checked=100, num_differed=0,
    stored_nbytes=1 << 30, saved_s=12.4,
)  # fmt: skip


def test_what_would_hold_all_is_for_all_ranks_of_a_machine():
    full = remembered(replace(PLACE, num_samples=9_000), used_nbytes=8 << 30)
    one, four = (
        summary(report(loader(0), remembered=replace(full, num_sharing=num))) for num in (1, 4)
    )
    asked = [int(re.search(r"--cache-memory (\d+)G", text)[1]) for text in (one, four)]
    assert asked[1] > 3 * asked[0]


def remembered(*places, budget_nbytes=8 << 30, used_nbytes=1 << 30, away_nbytes=0):
    return Remembered(budget_nbytes, used_nbytes, away_nbytes, list(places))


def test_what_is_remembered_is_told_by_place_and_survives_the_log(log):
    made = report(loader(0), remembered=remembered(PLACE))
    assert json.loads(json.dumps(made)) == made
    assert made["cache"]["places"][0]["num_hits"] == 1500
    assert Remembered.from_json(made["cache"]) == remembered(PLACE)
    log.append("remembered", remembered=remembered(PLACE).as_json())
    assert log.read()[1].remembered == remembered(PLACE)


def test_the_summary_tells_what_was_not_made_again():
    text = summary(report(loader(0), remembered=remembered(PLACE)))
    assert "1,400 samples came from what is remembered (1.0 GiB), 12 s of work saved" in text
    assert "--cache-memory" not in text


def test_the_summary_tells_of_no_work_that_was_saved_if_there_was_none():
    text = summary(report(loader(0), remembered=remembered(replace(PLACE, saved_s=0.4))))
    assert "1,400 samples came from what is remembered (1.0 GiB)\n" in text
    assert "saved" not in text


def test_the_summary_tells_files_that_were_not_decoded_again_from_samples():
    files = replace(PLACE, place="decoder cv2.imread", depth=DECODED, num_samples=0)
    text = summary(report(loader(0), remembered=remembered(PLACE, files, used_nbytes=8 << 30)))
    assert (
        "1,400 samples and 1,400 decoded files came from what is remembered (8.0 GiB), 25 s" in text
    )
    text = summary(report(loader(0), remembered=remembered(replace(files, num_hits=0))))
    assert "remembered" not in text


def test_the_summary_tells_what_other_machines_remember():
    text = summary(report(loader(0), remembered=remembered(PLACE, away_nbytes=3 << 30)))
    assert (
        "1,400 samples came from what is remembered (1.0 GiB here, 3.0 GiB on other machines), 12 s"
        in text
    )
    disk = RememberedOnDisk("/disk", 9 << 30, 5 << 30, "")
    text = summary(
        report(loader(0), remembered=replace(remembered(PLACE, away_nbytes=3 << 30), disk=disk))
    )
    assert "(1.0 GiB in memory and 5.0 GiB on disk here, 3.0 GiB on other machines)" in text


def test_the_summary_tells_how_much_memory_would_hold_all():
    full = remembered(PLACE, budget_nbytes=1 << 30)
    assert "(--cache-memory 2G would hold all of them)" in summary(
        report(loader(0), remembered=full)
    )


def test_the_summary_tells_of_a_sample_that_differed():
    differed = replace(
        PLACE, phase="off", num_differed=1, why="sample 3 differed when it was made again"
    )
    text = summary(report(loader(0), remembered=remembered(differed)))
    assert "data.py:12 Photos: sample 3 differed when it was made again; nothing of it is" in text


def test_the_summary_is_silent_where_nothing_was_served():
    proving = replace(PLACE, phase="proving", num_hits=20, num_checked=20)
    assert "remembered" not in summary(report(loader(0), remembered=remembered(proving)))
    assert "remembered" not in summary(report(loader(0)))


# -- the summary ---------------------------------------------------------------------------------

counts = st.integers(0, 10**9)
seconds = st.floats(0, 1e6)
loaders = st.builds(
    LoaderRecord,
    number=st.just(0),
    place=st.sampled_from(["train.py:3", "a/b.py:10"]),
    offloaded=st.booleans(),
    reasons=st.lists(st.just("a reason"), max_size=2),
    chains=st.integers(0, 64),
    num_batches=counts, num_samples=counts, num_iters=counts, wait_s=seconds, first_wait_s=seconds,
    busy_s=seconds, raw_nbytes=counts, num_copied=st.integers(0, 5), num_away=st.integers(0, 2),
    notes=st.lists(st.sampled_from(["a note", f"{ONLY_OWN}: it draws"]), max_size=3),
)  # fmt: skip
runs = st.builds(
    RunRecord,
    wall_s=seconds, num_lost=st.integers(0, 3), gradients=st.sampled_from([None, "4bit"]),
    cluster=st.sampled_from([None, "auto", "processes:2"]),
    price_worker=st.sampled_from([None, 0.1]), price_trainer=st.sampled_from([None, 0.1]),
    rank=st.sampled_from([None, 0]), without_stoker=st.sampled_from([[], [1, 2]]),
    seen_wait_s=seconds, seen_wait_cpu_s=seconds, num_cores=st.integers(1, 64),
)  # fmt: skip


@given(st.lists(loaders, max_size=40), runs)
def test_the_summary_is_short_and_plain_and_every_line_says_who_speaks(found, run):
    text = summary(as_json(run, found, "exit"))
    assert text.endswith("\n")
    lines = text.splitlines()
    assert 1 <= len(lines) <= MAX_LINES == 5
    assert all(line.startswith("stoker: ") for line in lines)
    words = text.replace("--chains", "")
    assert not [word for word in ("chain", "slot", "made ahead", "offload") if word in words]
    assert " 1 batches" not in text and " 1 workers" not in text


def test_the_loaders_that_were_waited_for_most_are_shown_and_the_others_counted():
    found = [loader(number, num_batches=10, wait_s=number % 10) for number in range(20)]
    lines = summary(report(*found, wall_s=100.0)).splitlines()
    assert len(lines) == MAX_LINES
    assert [line.split(":")[2] for line in lines if "train.py:" in line] == ["9", "19"]
    assert "stoker: 18 more loaders: 180 batches" in lines[3] and "--report-json" in lines[3]


def loaded(wait_s, **values):
    return loader(**({"num_batches": 10, "wait_s": wait_s} | values))


PLAIN = {"offloaded": False, "reasons": ["num_workers=0: its state moves"], "chains": 0}
DATA = "data is the limit: 50% waiting; "


@pytest.mark.parametrize(
    ("found", "run", "said"),
    [
        (loaded(2.0), {}, "the model is the limit: 2% waiting"),
        (loaded(60.0, hidden_s=58.5), {}, "the model is the limit: 2% waiting"),  # a GPU computed
        (loaded(1.0, hidden_s=1.5), {}, "the model is the limit: 0% waiting"),
        (
            loaded(2.0),
            {"seen_wait_s": 2.0, "seen_wait_cpu_s": 1.0},
            "the model is the limit: 2% waiting; OpenMP threads of the training process spin on",
        ),
        (
            loaded(5.0, chains=8),
            {"num_cores": 8},
            "waiting for data takes 5% of the time",
        ),
        (
            loaded(50.0, notes=[f"{ONLY_OWN}: an iterable dataset {KEEPS_NUMBER}"]),
            {"num_cores": 8},
            DATA + "a larger num_workers would use all 8 cores; samples are then shared otherwise",
        ),
        (loaded(50.0), {"num_cores": 8}, DATA + "all 8 cores are at work; more CPUs"),
        (loaded(50.0, notes=[f"{ONLY_OWN}: it draws"]), {"num_cores": 8}, DATA + "--chains auto uses all 8 cores; random augmentation"),
        (loaded(50.0, chains=8), {"num_cores": 8}, DATA + "all 8 cores are at work; more CPUs: --cluster ("),
        (loaded(50.0, chains=8), {"num_cores": 8, "cluster": "processes:2", "away_hours": 2.0}, DATA + "all 8 cores are at work; more CPUs: --cluster ("),
        (loaded(50.0, chains=8), {"num_cores": 8, "cluster": "auto"}, DATA + "all 8 cores are at work; no other machine had joined"),
        (loaded(50.0, num_away=3), {"cluster": "auto", "away_hours": 2.0}, DATA + "try more workers on other machines"),
        (loaded(50.0, **PLAIN), {"num_cores": 8}, DATA + "--chains 8 gives it 8 workers; random augm"),
        (loaded(50.0, **PLAIN), {"cluster": "auto", "away_hours": 1.0}, DATA + "--chains 2 gives it 2 workers"),
        (loaded(50.0, **PLAIN), {}, DATA + "one core does it all; more CPUs: --cl"),
        (loaded(50.0, first_wait_s=30.0, num_iters=9), {}, DATA + "30.0 s of it while workers start: try"),
        (loaded(50.0, first_wait_s=30.0, num_iters=1), {}, DATA + "30.0 s of it for the first batch"),
        (loaded(50.0, num_copied=9), {}, DATA + "the script holds more batches than --memory allows"),
        (
            loaded(50.0, first_wait_s=30.0, num_iters=9),
            {"seen_wait_s": 2.0, "seen_wait_cpu_s": 1.0},
            DATA + "OpenMP threads of the training process spin on the workers' cores: try OMP_NUM_",
        ),
        (
            loaded(50.0),
            {"seen_wait_s": 2.0, "seen_wait_cpu_s": 1.0},
            DATA + "OpenMP threads of the training process spin on the workers' cores: try OMP_NUM_",
        ),
        (
            loaded(50.0, offloaded=False, reasons=["--off: everything is left to torch"]),
            {},
            DATA + "try it without --off",
        ),
        (
            loaded(50.0, **PLAIN | {"reasons": ["num_workers=0: the dataset is iterable"]}),
            {"num_cores": 8},
            DATA + "nothing that stoker knows of makes train.py:0 faster",
        ),
        (loaded(50.0), {"without_stoker": [1, 3]}, "ranks without stoker: 1, 3; start their launcher"),
    ],
)  # fmt: skip
def test_the_last_line_is_one_verdict(found, run, said):
    last = summary(report(found, wall_s=100.0, **run)).splitlines()[-1]
    assert last.startswith(f"stoker: {said}")
    assert not said.endswith("of the time") or last == f"stoker: {said}"


def test_a_run_without_a_batch_has_no_verdict():
    assert summary(report(loader(), wall_s=1.0)).splitlines() == [
        "stoker: 0 batches in 1.0 s; training waited 0.0 s for data (0%)",
        "stoker: train.py:0: 0 batches by 2 workers",
    ]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (PLAIN, "train.py:0: 0 batches by plain PyTorch: num_workers=0: its state moves\n"),
        ({"offloaded": False}, "by plain PyTorch: asked to\n"),
        ({"chains": 0}, "0 batches by processes on the other cores\n"),
        ({"chains": 1, "num_batches": 1}, "1 batch by 1 worker\n"),
        (
            {"num_away": 1234, "wire_nbytes": 3 << 20},
            "1,234 of them on other machines (3.0 MiB received)",
        ),
        ({"num_copied": 1234}, "1,234 were copied: the script holds more than --memory"),
        ({"notes": [f"{ONLY_OWN}: it draws"]}, "0 batches by 2 workers\n"),
        ({"notes": [f"{ONLY_OWN}: it draws", "a note"]}, "0 batches by 2 workers; a note\n"),
    ],
)
def test_a_loaders_line_says_what_became_of_it(values, said):
    assert said in summary(report(loader(**values)))


def test_lost_workers_gradients_costs_and_the_end_are_told_in_one_line():
    run = {"num_lost": 2, "num_replayed": 5, "gradients": "4bit", "price_trainer": 3.0}
    lines = summary(report(loader(), ended="SIGTERM", wall_s=3600.0, **run)).splitlines()
    assert "ended by SIGTERM" in lines[0]
    assert lines[-1] == (
        "stoker: 2 workers died; recomputed at most 5 batches; none was lost or given twice; "
        "gradients: 4bit, 0 B sent in place of 0 B; this machine cost 3.00"
    )


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (5 << 40, "5.0 TiB"),
     (5 << 50, "5120.0 TiB")],
)  # fmt: skip
def test_sizes_are_read_in_binary_units(nbytes, text):
    assert readable_nbytes(nbytes) == text
