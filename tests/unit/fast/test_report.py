"""What is kept of faster ways for the next run: those that were compared often enough and never differed."""

import os
import sys

import pytest

from stoker.fast import report as module
from stoker.fast.report import NUM_PROVE, Report, pack_news
from stoker.reports.metrics import FastPlace


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "PIL._imaging", sys)  # whichever: it is loaded
    return tmp_path / "stoker" / "stoker-remembered-1"


def run(*places):
    """What a run begins with and, at its end, tells the next one."""
    report = Report()
    known = report.wish(audit=False, lasts=True).known
    report.take_in(pack_news(list(places)))
    report._keep(os.getpid())
    return known


PROVEN = FastPlace("JPEG file -> tensor", 9, NUM_PROVE)
SELDOM = FastPlace("image -> tensor", 9, NUM_PROVE - 1)
DIFFERED = FastPlace("sounds", 9, NUM_PROVE, 0, "a result differed from the original's")


def test_the_next_run_knows_what_was_proven():
    assert run(PROVEN, SELDOM, DIFFERED) == {}
    assert run() == {PROVEN.place: ""}
    assert run(FastPlace(SELDOM.place, 9, NUM_PROVE)) == {PROVEN.place: ""}
    assert run() == {PROVEN.place: "", SELDOM.place: ""}


def test_what_differs_is_proven_no_more():
    run(PROVEN)
    run(FastPlace(PROVEN.place, 300, 1, 0, DIFFERED.why))
    assert run() == {}


def test_a_child_that_the_script_forked_tells_nothing():
    report = Report()
    report.take_in(pack_news([PROVEN]))
    report._keep(os.getpid() + 1)
    assert run() == {}


def test_where_other_machines_make_batches_nothing_is_known_of_them():
    run(PROVEN)
    assert Report().wish(audit=False, lasts=False).known == {}


def test_other_versions_have_to_prove_it_themselves(monkeypatch):
    run(PROVEN)
    monkeypatch.setattr(module, "foundations", lambda: b"another Pillow")
    assert run() == {}


def test_of_jpeg_files_nothing_is_known_before_their_decoder_is_loaded(monkeypatch):
    run(PROVEN, FastPlace(SELDOM.place, 9, NUM_PROVE))
    with monkeypatch.context() as without:
        without.delitem(sys.modules, "PIL._imaging")
        assert run(FastPlace("sounds", 9, NUM_PROVE)) == {SELDOM.place: ""}
    assert set(run()) == {PROVEN.place, SELDOM.place, "sounds"}, "which that run has not taken out"


@pytest.mark.parametrize("damage", ["torn", "of others"])
def test_what_is_not_whole_is_not_believed(folder, damage):
    run(PROVEN)
    (file,) = folder.iterdir()
    if damage == "torn":
        file.write_bytes(file.read_bytes()[:-1])
    else:
        folder.chmod(0o777)
    assert run() == {}


def test_where_no_folder_can_be_made_each_run_proves_it_anew(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    for nowhere in (str(tmp_path / "file"), "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", nowhere)
        run(PROVEN)
        assert run() == {}


def test_of_many_versions_the_last_are_kept(monkeypatch, folder):
    for k in range(module._MAX_FILES + 3):
        monkeypatch.setattr(module, "foundations", lambda k=k: str(k).encode())
        run(PROVEN)
    assert len(list(folder.iterdir())) == module._MAX_FILES
