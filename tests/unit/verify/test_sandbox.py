"""A scratch folder of links."""

from pathlib import Path

import pytest

from stoker.verify import sandbox
from stoker.verify.sandbox import Sandbox


@pytest.fixture
def real(tmp_path):
    folder = tmp_path / "home" / "project"
    for name in ("runs/old", "data/cats", ".git"):
        (folder / name).mkdir(parents=True)
    for name in ("train.py", "runs/old/log.txt", "data/cats/1.jpg", ".git/HEAD"):
        (folder / name).write_text(name)
    (tmp_path / "home" / "beside.txt").write_text("beside")
    return folder


@pytest.fixture
def scratch(tmp_path, real):
    made = Sandbox(real, tmp_path / "scratch")
    made.make()
    return made


def test_everything_can_be_read_where_it_was(scratch, real):
    for name in ("train.py", "runs/old/log.txt", "data/cats/1.jpg", ".git/HEAD"):
        assert (scratch.path / name).read_text() == name
    assert Path(scratch.path, "..", "beside.txt").read_text() == "beside"


def test_what_is_new_replaced_or_deleted_stays_in_the_scratch(scratch, real):
    (scratch.path / "runs" / "new.txt").write_text("new")
    (scratch.path / "other.txt").write_text("other")
    (scratch.path / "train.py").unlink()
    (scratch.path / "other.txt").replace(scratch.path / "data" / "cats" / "1.jpg")
    assert sorted(entry.name for entry in real.iterdir()) == [".git", "data", "runs", "train.py"]
    assert not (real / "runs" / "new.txt").exists()
    assert (real / "data" / "cats" / "1.jpg").read_text() == "data/cats/1.jpg"
    assert scratch.changed() == []


def test_made_again_it_is_as_at_first(scratch):
    (scratch.path / "left.txt").write_text("left")
    scratch.make()
    assert not (scratch.path / "left.txt").exists()
    assert (scratch.path / "train.py").read_text() == "train.py"


def test_a_file_that_is_written_in_place_is_told(scratch):
    (scratch.path / "runs" / "old" / "log.txt").write_text("longer than it was before")
    assert scratch.changed() == ["runs/old/log.txt"]


def test_large_and_hidden_folders_are_links(tmp_path, real, monkeypatch):
    monkeypatch.setattr(sandbox, "MAX_ENTRIES", 3)
    (real / "many").mkdir()
    for k in range(4):
        (real / "many" / str(k)).touch()
    made = Sandbox(real, tmp_path / "scratch")
    made.make()
    assert (made.path / "many").is_symlink()
    assert (made.path / ".git").is_symlink()
    assert not (made.path / "runs").is_symlink()


def test_links_are_bounded(tmp_path, real, monkeypatch):
    monkeypatch.setattr(sandbox, "MAX_LINKS", 5)
    made = Sandbox(real, tmp_path / "scratch")
    made.make()
    links = [path for path in made.path.rglob("*") if path.is_symlink()]
    assert len(links) <= 6
    assert (made.path / "runs" / "old" / "log.txt").read_text() == "runs/old/log.txt"
