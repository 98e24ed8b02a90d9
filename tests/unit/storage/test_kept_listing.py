"""Listings from run to run: what was kept is found, damage is nothing, and what changed is told."""

import os
import threading
from array import array

import pytest

from stoker.clock import Deadline
from stoker.kept_files import NAME, KeptFolder
from stoker.storage.origins import UNKNOWN, Changed, Entry, Missing
from stoker.storage.reading.stats import StorageStats
from stoker.storage.serving.folder import Folder, inode_of
from stoker.storage.serving.kept_listing import KeptListing
from stoker.storage.serving.tree import Tree
from tests.unit.storage.fake_origin import FakeOrigin

ENTRIES = {
    "a ü.jpg": Entry(False, 10, 5, '"tag"'),
    "sub": Entry(True),
    "empty": Entry(False, 0, -1, ""),
    "unknown": Entry(False, UNKNOWN),
    "large": Entry(False, 1 << 60, 1 << 62, "x" * 100),
}
NOTHING = Folder("", {})
MUCH = 1 << 20


def kept(folder, url="s3://a"):
    return KeptListing(KeptFolder(folder, MUCH), url)


def files(folder):
    return list((folder / NAME).iterdir())


def test_what_was_kept_is_found_again(tmp_path):
    before = Folder("", ENTRIES)
    kept(tmp_path).save({"": before, "none": NOTHING}, {"x/y": Folder("x/y", ENTRIES)})
    found = kept(tmp_path)
    folder = found.listed("")
    assert folder.names == sorted(ENTRIES) and folder.entries == ENTRIES
    assert folder.are_folders == before.are_folders == b"\0\0\0\1\0"
    assert folder.inodes == before.inodes == array("Q", map(inode_of, folder.names))
    assert found.listed("none").names == [] and found.listed("none").entries == {}
    assert found.learnt("x/y") == ENTRIES and found.learnt("") == {}
    assert found.listed("x/y") is None
    assert kept(tmp_path, "s3://b").listed("") is None


def test_folders_that_a_run_has_not_looked_at_stay_kept(tmp_path):
    kept(tmp_path).save({"a": Folder("a", ENTRIES), "b": Folder("b", ENTRIES)}, {})
    kept(tmp_path).save({"b": NOTHING}, {})
    found = kept(tmp_path)
    assert found.listed("a").entries == ENTRIES and found.listed("b").entries == {}


@pytest.mark.parametrize("at", [0, 10, 25, 200, -5])
def test_a_damaged_file_is_none_and_never_a_wrong_one(tmp_path, at):
    kept(tmp_path).save({"": Folder("", ENTRIES), "b": Folder("b", ENTRIES)}, {})
    (file,) = files(tmp_path)
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)
    found = kept(tmp_path)
    for folder in (found.listed(""), found.listed("b")):
        assert folder is None or folder.entries == ENTRIES
    file.write_bytes(bytes(data[:30]))
    assert kept(tmp_path).listed("") is None


FILES = {"a/1.jpg": b"1", "a/2.jpg": b"22", "top": b""}


@pytest.fixture
def run(tmp_path):
    trees = []

    def start(origin):
        said = []
        trees.append(Tree(origin, StorageStats(), 5.0, kept(tmp_path), said.append))
        return trees[-1], said

    yield start
    for tree in trees:
        tree.close()
        for thread in tree.threads:
            thread.join()


def settle(tree):
    """Wait until listings that were taken from an earlier run have been compared."""
    tree.close()
    for thread in tree.threads:
        thread.join()
    for folder in tuple(tree._doubted):
        tree._compare(folder)


def test_a_second_run_has_the_list_at_once_and_compares_it(run):
    tree, _ = run(FakeOrigin(FILES))
    assert tree.folder("").names == ["a", "top"] and tree.folder("a").names == ["1.jpg", "2.jpg"]
    tree.save()
    origin = FakeOrigin(FILES)
    origin.gate.clear()  # it does not answer yet
    tree, said = run(origin)
    assert tree.folder("").names == ["a", "top"] and tree.entry("a/2.jpg").nbytes == 2
    origin.gate.set()
    settle(tree)
    assert said == [] and ("list", "a") in origin.asked


def test_what_has_changed_is_said_and_an_error_and_the_next_run_has_it(run):
    tree, _ = run(FakeOrigin(FILES))
    tree.folder("a")
    tree.save()
    now = {**FILES, "a/2.jpg": b"other", "a/3.jpg": b"new"}
    tree, said = run(FakeOrigin(now))
    assert tree.folder("a").names == ["1.jpg", "2.jpg"]
    settle(tree)
    assert len(said) == 1 and "2 names (2.jpg, ...)" in said[0]
    with pytest.raises(Changed):
        tree.entry("a/2.jpg")
    assert tree.entry("a/1.jpg").nbytes == 1
    tree.save()
    tree, said = run(FakeOrigin(now))
    assert tree.folder("a").names == ["1.jpg", "2.jpg", "3.jpg"]
    settle(tree)
    assert said == []


def test_what_has_changed_is_kept_before_the_run_ends(run, tmp_path):
    tree, _ = run(FakeOrigin(FILES))
    tree.folder("a")
    tree.save()
    tree, _ = run(FakeOrigin({**FILES, "a/3.jpg": b"new"}))
    tree.folder("a")
    limit = Deadline(30)
    while kept(tmp_path).listed("a").names != ["1.jpg", "2.jpg", "3.jpg"]:
        assert not limit.is_over()
        threading.Event().wait(0.01)


def test_what_runs_have_left_that_were_killed_while_they_wrote_is_removed(tmp_path):
    kept(tmp_path).save({"": NOTHING}, {})
    (file,) = files(tmp_path)
    names = (f"{file.name}.{'1' * 24}.part", f"{file.name}.{'2' * 24}.part", "mine.part")
    torn, young, other = (file.with_name(name) for name in names)
    for each in (torn, young, other):
        each.write_bytes(b"half")
    for each in (torn, other):
        os.utime(each, (0, 0))
    kept(tmp_path).save({"": Folder("", ENTRIES)}, {})
    assert set(files(tmp_path)) == {file, young, other}


@pytest.mark.parametrize("why", ["ended before it was compared", "a file was another one"])
def test_a_listing_that_is_doubted_is_not_there_for_the_next_run(run, why):
    tree, _ = run(FakeOrigin(FILES))
    tree.folder("a")
    if why == "a file was another one":
        tree.doubt("a/1.jpg")
    tree.save()
    now = {**FILES, "a/3.jpg": b"new"}
    if why == "ended before it was compared":
        tree, _ = run(FakeOrigin(now))
        assert tree.folder("a").names == ["1.jpg", "2.jpg"]
        tree.save()
    tree, _ = run(FakeOrigin(now))
    assert tree.folder("a").names == ["1.jpg", "2.jpg", "3.jpg"]


@pytest.mark.parametrize("has_sizes", [True, False])
def test_a_folder_that_shows_no_list_any_more_is_no_empty_one(run, has_sizes):
    tree, _ = run(FakeOrigin(FILES, has_sizes=has_sizes))
    tree.folder("a")
    tree.save()
    tree, _ = run(FakeOrigin({"top": b""}, has_sizes=has_sizes))
    assert tree.folder("a").names == ["1.jpg", "2.jpg"]
    settle(tree)
    assert tree.has_changed("a/1.jpg") == has_sizes  # else it may be there all the same
    tree.save()
    tree, _ = run(FakeOrigin({"top": b""}, has_sizes=has_sizes))
    with pytest.raises(Missing):
        tree.folder("a")


def test_what_is_kept_is_not_compared_while_more_of_it_is_asked_for(run):
    tree, _ = run(FakeOrigin(FILES))
    tree.folder("")
    tree.folder("a")
    tree.save()
    origin = FakeOrigin(FILES)
    tree, _ = run(origin)
    tree.folder("")
    tree.folder("a")
    assert origin.asked == []
    while len(origin.asked) < 2:  # of itself, once it is quiet
        threading.Event().wait(0.01)
    assert sorted(origin.asked) == [("list", ""), ("list", "a")]


def test_what_was_learnt_of_files_is_a_hint_for_the_next_run(run):
    tree, _ = run(FakeOrigin(FILES, has_sizes=False))
    assert tree.entry("a/1.jpg").nbytes == UNKNOWN and tree.hint("a/1.jpg") is None
    tree.learn("a/1.jpg", Entry(False, 1, 7, "tag"))
    tree.save()
    tree, _ = run(FakeOrigin(FILES, has_sizes=False))
    assert tree.hint("a/1.jpg") == Entry(False, 1, 7, "tag") and tree.hint("a/2.jpg") is None
    assert tree.entry("a/1.jpg").nbytes == UNKNOWN  # a hint is not believed
