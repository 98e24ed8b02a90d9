"""Of which paths a computation asks what lies there: each answer is one that can be asked again."""

import contextlib
import os
import shutil
import time
import traceback

import pytest

from stoker.memory.watch import asked
from stoker.memory.watch.asked import Asked, are_same
from stoker.memory.watch.files import absolute

LATER_NS = 10**18  # after the last change by far


@pytest.fixture
def told():
    """What `run` notes, as identities."""
    made = Asked()

    def run(make, *opened):
        made.run(make)
        return made.identities(opened, time.time_ns() + LATER_NS)

    return run


@pytest.fixture
def linked(tmp_path, monkeypatch):
    """data -> elsewhere/train; beside the latter lie masks, and beside the former others."""
    for folder in ("elsewhere/train", "elsewhere/masks", "masks"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "data").symlink_to("elsewhere/train")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_comes_and_what_goes_is_seen(told, tmp_path):
    here, nowhere, deep = tmp_path / "here", tmp_path / "nowhere", tmp_path / "a" / "b" / "c"
    here.write_text("x")

    def ask():
        return here.exists(), os.path.isfile(nowhere), deep.is_dir()

    for change in (here.unlink, nowhere.mkdir, lambda: deep.mkdir(parents=True)):
        found = told(ask)
        assert len(found) == 3
        assert are_same(found)
        change()
        assert not are_same(found)


def test_what_was_opened_is_not_told_twice(told, tmp_path):
    (tmp_path / "x").write_text("x")
    assert told((tmp_path / "x").exists, str(tmp_path / "x")) == ()


def test_a_folder_above_a_link_is_where_the_link_leads(told, linked):
    found = told(lambda: os.path.exists("data/../masks/7"))
    (linked / "masks" / "7").write_text("another")
    assert are_same(found)
    (linked / "elsewhere" / "masks" / "7").write_text("this one")
    assert not are_same(found)
    assert absolute("data/../masks/7") == f"{linked}/data/../masks/7"
    assert absolute("data//./7") == f"{linked}/data/7"


@pytest.mark.parametrize(
    "ask", [os.path.lexists, os.path.islink, os.path.exists], ids=lambda f: f.__name__
)
def test_links_and_what_they_lead_to_are_told_apart(ask, told, linked):
    def answers():
        return ask("dangling"), ask("data"), ask("masks")

    def dangle():
        (linked / "dangling").symlink_to("nowhere")

    def put_in_place():
        shutil.rmtree("masks")
        (linked / "masks").symlink_to("elsewhere/masks")

    def lead_somewhere():
        (linked / "nowhere").write_text("x")

    for change in (dangle, put_in_place, lead_somewhere):
        before, found = answers(), told(answers)
        assert are_same(found)
        change()
        assert answers() == before or not are_same(found)


@pytest.mark.parametrize("path", [None, object(), "\0", b"\xff\0"])
def test_what_is_no_path_cannot_be_told(path, told):
    def ask():
        with contextlib.suppress(TypeError, ValueError):
            os.stat(path)

    assert told(ask) is None


def test_what_is_asked_beside_a_folder_that_is_open_cannot_be_told(told, tmp_path):
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert told(lambda: os.stat(".", dir_fd=folder)) is None
    finally:
        os.close(folder)


def test_what_has_come_just_now_cannot_be_told(tmp_path):
    made = Asked()
    made.run((tmp_path / "x").exists)
    assert made.identities((), time.time_ns() - LATER_NS) is None


def test_errors_show_nothing_of_ours_and_all_is_given_back(tmp_path):
    before = os.stat, os.lstat
    made = Asked()

    def ask():
        assert os.stat in os.supports_follow_symlinks
        try:
            os.path.getsize(tmp_path / "nowhere")
        except OSError as error:
            raise LookupError from error

    with pytest.raises(LookupError) as caught:
        made.run(ask)
    assert (os.stat, os.lstat) == before
    text = "".join(traceback.format_exception(caught.value))
    assert "getsize" in text
    assert "in noting" not in text


def test_what_a_script_puts_in_its_place_stays(monkeypatch):
    made, theirs = Asked(), lambda *arguments, **named: None
    monkeypatch.setattr(os, "stat", os.stat)
    made.run(lambda: setattr(os, "stat", theirs))
    assert os.stat is theirs
    made.run(os.stat, "anything")
    assert os.stat is theirs


def test_a_process_that_is_forked_meanwhile_notes_nothing(tmp_path):
    made = Asked()

    def ask():
        pid = os.fork()
        if pid == 0:
            os.stat(tmp_path)
            os._exit(0 if not made._paths else 1)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert made.run(ask) == 0


def test_the_root_has_nothing_above_it():
    assert not asked._was_so(("", asked._NOTHING, 0, 0, 0, 0), 0)
