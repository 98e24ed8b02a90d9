"""Logs of runs: what was appended is read back, whatever has become of the file or its writer."""

import fcntl
import json
from pathlib import Path

import pytest

from stoker.runs import folder as folder_module
from stoker.runs.buckets import Look
from stoker.runs.file import Writer, read
from stoker.runs.folder import folder_of, is_written, logs_in, prune
from stoker.stalls.split import Seen

ABOUT = {
    "began_unix_s": 1_800_000_000.5, "began_s": 100.0, "pid": 7, "rank": None, "command": ["python", "train.py"],
    "folder": "/work", "host": "here", "settings": {}, "stoker": "0.1.0", "python": "3.11", "torch": "2.13",
}  # fmt: skip
LOADER = {
    "kind": "loader",
    "number": 0,
    "place": "train.py:9",
    "offloaded": True,
    "reasons": [],
    "chains": 2,
}
REPORT = {"ended": "exit", "wall_s": 3.0, "loaders": []}


def written(folder, **about):
    writer = Writer(folder, ABOUT | about)
    writer.take(
        [LOADER], [Look(100.5, 0, 1, 16, 0.25, 0.1), Look(102.5, 0, 3, 48, 0.75, 0.2)], 103.0
    )
    return writer


def closed(writer):
    writer.close()
    return writer.file


def test_a_run_is_read_as_it_was_written(tmp_path):
    writer = written(tmp_path / "state" / "runs")
    assert read(writer.file).lasts
    writer.end(REPORT)
    run = read(closed(writer))
    assert (run.name, run.lasts, run.report) == ("20270115-080000-7", False, REPORT)
    assert run.about == ABOUT | {"version": 1}
    assert [loader["place"] for loader in run.loaders] == ["train.py:9"]
    assert [(span.at_s, span.rows[0].num_batches) for span in run.spans] == [(0.0, 1), (2.0, 2)]
    assert sum(num for _, num in run.steps) == 3
    assert run.slowest[0].batch == 1
    assert run.file.stat().st_mode & 0o777 == 0o600


def test_what_was_seen_of_steps_is_read_too(tmp_path):
    seen = Seen(0.25, 0.5, 1.0, 2.0, 4.0)
    looks = [Look(101.0, 0, 1, 16, 1.0, 3.0, Seen(0.125)), Look(102.5, 0, 2, 32, 2.0, 10.0, seen)]
    writer = Writer(tmp_path, ABOUT)
    writer.take([LOADER], looks, 103.0)
    writer.end(REPORT)
    run = read(closed(writer))
    assert [span.rows[0].seen for span in run.spans] == [Seen(0.125), seen.minus(Seen(0.125))]
    assert run.slowest[0].seen == seen.minus(Seen(0.125))
    split = run.split()
    assert sum(split) == pytest.approx(12.0)
    assert (split.own_s, split.unseen_s) == (
        0.25,
        3.0,
    )  # of the first step only stoker's work was seen


def test_a_log_whose_last_line_is_another_versions_is_read_as_if_it_ended_before(tmp_path):
    writer = written(tmp_path)
    writer.end(REPORT)
    file = closed(writer)
    *lines, last = file.read_text().splitlines(keepends=True)
    end = json.loads(last)
    end["slowest"] = [each[:3] for each in end["slowest"]]
    file.write_text("".join(lines) + json.dumps(end) + "\n")
    assert read(file).report is None and len(read(file).spans) == 2


@pytest.mark.parametrize("cut", range(1, 400, 23))
def test_of_a_log_that_ends_anywhere_the_whole_lines_are_read(tmp_path, cut):
    writer = written(tmp_path)
    writer.end(REPORT)
    file = closed(writer)
    file.write_bytes(file.read_bytes()[:-cut])
    run = read(file)
    assert run.about["pid"] == 7
    assert run.report is None or cut == 1
    assert len(run.spans) <= 2


@pytest.mark.parametrize(
    "content", [b"", b"\0\xff\n", b"[1]\n", b'{"kind": "run", "version": 99}\n', b"{}\n3\n"]
)
def test_what_is_no_log_is_none(tmp_path, content):
    file = tmp_path / "20270115-080000-7.jsonl"
    file.write_bytes(content)
    assert read(file) is None


def test_ranks_have_logs_of_their_own(tmp_path):
    assert closed(written(tmp_path, rank=3)).name == "20270115-080000-7-rank3.jsonl"
    assert [file.name for file in logs_in(tmp_path)] == ["20270115-080000-7-rank3.jsonl"]


def test_a_name_that_is_taken_is_not_written_over(tmp_path):
    first = closed(written(tmp_path))
    before = first.read_bytes()
    second, third = (closed(written(tmp_path)) for _ in range(2))
    assert first.read_bytes() == before
    assert logs_in(tmp_path) == [first, second, third]
    assert read(third).name == "20270115-080000-7.3"


def test_a_link_is_not_followed(tmp_path):
    target = tmp_path / "precious"
    target.write_text("mine")
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "20270115-080000-7.jsonl").symlink_to(target)
    closed(written(runs))
    assert target.read_text() == "mine"


def test_the_oldest_logs_go_but_not_those_that_are_written_nor_other_files(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_module, "NUM_KEPT", 3)
    kept = [tmp_path / name for name in ("notes.txt", "20270101-000000-1.jsonl.bak")]
    logs = [tmp_path / f"2027010{day}-000000-1.jsonl" for day in range(1, 7)]
    for file in [*kept, *logs]:
        file.write_text("{}\n")
    with logs[0].open() as lasting:
        fcntl.flock(lasting, fcntl.LOCK_EX)
        prune(tmp_path)
        assert logs_in(tmp_path) == [logs[0], *logs[-2:]]
    assert all(file.exists() for file in kept)


def test_large_logs_go_sooner(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_module, "KEPT_NBYTES", 2500)
    logs = [tmp_path / f"2027010{day}-000000-1.jsonl" for day in range(1, 5)]
    for file in logs:
        file.write_text("x" * 1000)
    prune(tmp_path)
    assert logs_in(tmp_path) == logs[-2:]


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({"HOME": "/home/me"}, "/home/me/.local/state/stoker/runs"),
        ({"HOME": "/home/me", "XDG_STATE_HOME": "/state"}, "/state/stoker/runs"),
        ({"HOME": "/home/me", "XDG_STATE_HOME": "relative"}, "/home/me/.local/state/stoker/runs"),
        ({"HOME": ""}, None),
        ({}, None),
    ],
)
def test_where_logs_are(environ, wanted):
    assert folder_of(environ) == (wanted and Path(wanted))


def test_a_folder_that_is_none_has_no_logs(tmp_path):
    (tmp_path / "file").touch()
    assert logs_in(tmp_path / "file") == logs_in(tmp_path / "nothing") == []
    assert not is_written(tmp_path / "nothing")
    with pytest.raises(OSError):
        Writer(tmp_path / "file", ABOUT)


def test_lines_are_json(tmp_path):
    writer = written(tmp_path)
    writer.end(REPORT)
    kinds = [json.loads(line)["kind"] for line in closed(writer).read_text().splitlines()]
    assert kinds == ["run", "loader", "span", "span", "end"]


def test_digests_of_batches_are_not_logged(tmp_path):
    writer = written(tmp_path)
    loader = {
        "place": "train.py:9",
        "first_wait_s": 0.25,
        "batches_sha256": 1_000_000 * ["ab" * 32],
    }
    writer.end({**REPORT, "loaders": [loader]})
    assert closed(writer).stat().st_size < 10_000
    assert read(writer.file).report["loaders"] == [{**loader, "batches_sha256": []}]


@pytest.mark.parametrize(
    "line",
    [
        '{"kind": "span"}',
        '{"kind": "span", "at_s": 1, "long_s": 1, "rows": [[1]]}',
        "[]",
        "7",
        '{"no": 1}',
    ],
)
def test_a_damaged_line_is_left_out(tmp_path, line):
    file = closed(written(tmp_path))
    file.write_text(file.read_text() + line + "\n")
    assert len(read(file).spans) == 2


@pytest.mark.parametrize("page", ["README.md", "docs/guarantees.md"])
def test_where_we_promise_to_leave_nothing_the_log_is_named(page):
    text = (Path(__file__).parents[3] / page).read_text()
    folder = folder_of({"HOME": "/home"}).relative_to("/home")
    told = f"{folder_module.NUM_KEPT} are kept, {folder_module.KEPT_NBYTES >> 20} MB"
    for words in (f"`~/{folder}`", told, "the command line", "`--no-run-log`"):
        assert words in " ".join(text.split())


def test_what_a_run_came_to(tmp_path):
    writer = written(tmp_path)
    lasting = read(writer.file).totals()
    assert (lasting.wall_s, lasting.wait_s, lasting.num_batches, lasting.num_samples) == (
        3.0,
        0.75,
        3,
        48,
    )
    writer.end({**REPORT, "loaders": [{"first_wait_s": 0.25}]})
    ended = read(closed(writer)).totals()
    assert ended.wall_s == REPORT["wall_s"]
    assert ended.rate == pytest.approx(48 / (0.75 + 0.2 - 0.25))


def test_a_run_did_not_wait_while_a_gpu_computed(tmp_path):
    run = read(closed(written(tmp_path)))
    rows = [[row._replace(seen=Seen(hidden_s=0.1)) for row in span.rows] for span in run.spans]
    hidden = run._replace(spans=[s._replace(rows=r) for s, r in zip(run.spans, rows, strict=True)])
    before, after = run.totals(), hidden.totals()
    assert after.wait_s == pytest.approx(before.wait_s - 0.1 * sum(map(len, rows)))
    assert after.rate == before.rate
