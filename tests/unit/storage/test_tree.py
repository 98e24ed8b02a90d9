"""Which folders and files an origin has: listed once, looked for by name, and errors that pass."""

import threading

import pytest

from stoker.storage.origins import Again, Denied, Missing
from stoker.storage.reading.stats import StorageStats
from stoker.storage.serving.tree import Tree
from tests.unit.storage.fake_origin import FakeOrigin

FILES = {"a/1.jpg": b"1", "a/2.jpg": b"22", "b/c/3.jpg": b"333", "top": b""}


@pytest.fixture
def made():
    trees = []

    def make(origin, limit_s=5.0):
        trees.append(Tree(origin, StorageStats(), limit_s))
        return trees[-1]

    yield make
    for tree in trees:
        tree.close()
        for thread in tree.threads:
            thread.join()


def lists(origin):
    return [each[1] for each in origin.asked if each[0] == "list"]


def test_names_come_in_order_and_folders_are_told(made):
    tree = made(FakeOrigin(FILES))
    assert tree.folder("").names == ["a", "b", "top"]
    assert tree.entry("b/c").is_folder and tree.entry("b/c/3.jpg").nbytes == 3
    assert tree.entry("").is_folder


def test_a_folder_is_listed_once_by_however_many(made):
    origin = FakeOrigin(FILES)
    tree = made(origin)
    threads = [threading.Thread(target=tree.folder, args=("a",)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tree.entry("a/1.jpg")
    assert lists(origin).count("a") == 1


def test_folders_of_a_folder_are_listed_before_somebody_asks(made):
    origin = FakeOrigin(FILES)
    tree = made(origin)
    tree.folder("")
    assert tree.folder("b").names == ["c"] and tree.folder("a").names == ["1.jpg", "2.jpg"]
    assert lists(origin).count("a") == lists(origin).count("b") == 1


def test_what_is_not_there_is_missing(made):
    tree = made(FakeOrigin(FILES))
    for path in ("nothing", "a/9.jpg", "nowhere/at/all"):
        with pytest.raises(Missing):
            tree.entry(path)


def test_an_error_that_passes_is_not_kept(made):
    origin = FakeOrigin(FILES)
    origin.fails = [Again("503"), Denied("403")]
    tree = made(origin)
    with pytest.raises(Denied):
        tree.folder("a")
    assert tree.folder("a").names == ["1.jpg", "2.jpg"]


def test_a_file_of_a_server_that_lists_nothing_is_looked_for_by_name(made):
    origin = FakeOrigin(FILES, has_sizes=False)
    origin.list = lambda folder: (_ for _ in ()).throw(Missing("no list"))
    tree = made(origin)
    assert tree.entry("a/2.jpg").nbytes == 2
    tree.entry("a/2.jpg")
    assert origin.asked == [("look", "a/2.jpg")]
