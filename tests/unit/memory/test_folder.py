"""The folder of a store on disk: what stays in it, and what goes."""

import os

import pytest

from stoker.kept_files import NAME
from stoker.memory.phases import EMPTY
from stoker.memory.store.disk import folder as folder_module
from stoker.memory.store.disk.folder import Folder

MUCH = 1 << 30
COUNTS = EMPTY._replace(num_learnt=16, num_timed=8, timed_us=999)


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(folder_module, "_MAX_PLACES", 3)


def digest(number):
    return number.to_bytes(16, "little")


def test_what_was_learnt_of_datasets_that_nobody_asked_for_longest_goes(few, tmp_path):
    folder = Folder(tmp_path, MUCH)
    for number in range(5):
        folder.note_learnt(digest(number), COUNTS)
        os.utime(tmp_path / NAME / f"{digest(number).hex()}.place", (number, number))
    assert folder.learnt(digest(0)) == COUNTS  # and is asked for now
    later = Folder(tmp_path, MUCH)
    assert [later.learnt(digest(number)) for number in range(5)] == [
        COUNTS,
        None,
        None,
        COUNTS,
        COUNTS,
    ]


def test_a_part_whose_writer_was_killed_goes_and_strangers_stay(few, tmp_path):
    Folder(tmp_path, MUCH)
    part, new = (f"{digest(1).hex()}.place.{letter * 24}.part" for letter in "ab")
    names = [part, new, "mine.txt", f"{digest(1).hex()}.mine", "notes.place.bak"]
    for name in names:
        (tmp_path / NAME / name).write_text("x")
        if name != new:
            os.utime(tmp_path / NAME / name, (1, 1))
    Folder(tmp_path, MUCH)
    assert {path.name for path in (tmp_path / NAME).iterdir()} == {*names} - {part}
