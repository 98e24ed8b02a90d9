"""Origins that fsspec reads: what their listings tell is what a file is."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import pytest

from stoker.storage.origins import Again, Missing, open_origin
from stoker.storage.origins.generic import NUM_ALONE, NUM_FOLLOWERS


def test_a_link_is_what_it_leads_to(tmp_path):
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    root.mkdir()
    (elsewhere / "folder").mkdir(parents=True)
    (elsewhere / "file").write_bytes(b"its bytes")
    os.utime(elsewhere / "file", (5, 5))
    for name in ("file", "folder", "nothing"):
        (root / name).symlink_to(elsewhere / name)
    (root / "round").symlink_to("round")
    origin = open_origin(f"file://{root}")
    listed = origin.list("")
    assert set(listed) == {"file", "folder"} and listed["folder"].is_folder
    assert listed["file"] == origin.look("file") and listed["file"].mtime_ns == 5 * 10**9
    assert origin.read("file", 0, 9, listed["file"]).body == b"its bytes"
    with pytest.raises(Missing):
        origin.look("nothing")
    origin.close()


def test_links_of_a_folder_are_followed_many_at_once(tmp_path, alone):
    (tmp_path / "pool").mkdir()
    (tmp_path / "shown").mkdir()
    num = 3 * NUM_FOLLOWERS
    for k in range(num):
        (tmp_path / "pool" / str(k)).write_bytes(bytes(k + 1))
        (tmp_path / "shown" / str(k)).symlink_to(tmp_path / "pool" / str(k))
    (tmp_path / "shown" / "a file").write_bytes(b"its own")
    origin = open_origin(f"alone://{tmp_path}/shown")
    alone.meet = threading.Barrier(NUM_FOLLOWERS, timeout=20.0)  # as many must be in there to go on
    listed = origin.list("")
    followers = [each for each in threading.enumerate() if each.name.startswith("storage-links")]
    assert (
        len(followers) == NUM_FOLLOWERS < NUM_ALONE
    )  # the rest of the connections are for who reads
    assert listed.pop("a file").nbytes == 7
    assert {name: entry.nbytes for name, entry in listed.items()} == {
        str(k): k + 1 for k in range(num)
    }
    origin.close()


@pytest.fixture
def alone(monkeypatch):
    """A file system of which each instance is for one thread, and what has used each."""
    import fsspec
    from fsspec.implementations.local import LocalFileSystem

    class Alone(LocalFileSystem):
        protocol = "alone"
        instances: ClassVar[list[object]] = []
        fails = False
        meet: ClassVar[threading.Barrier | None] = None

        def __init__(self, **options):
            super().__init__(**options)
            self.instances.append(self)
            self.is_used = False

        @classmethod
        def _strip_protocol(cls, path):
            return super()._strip_protocol(path.removeprefix("alone://"))

        def info(self, path, **options):
            # Of one, and not while all are listed.
            if self.meet is not None and isinstance(path, str) and Path(path).is_symlink():
                self.meet.wait()
            return super().info(path, **options)

        def cat_file(self, path, start=None, end=None, **options):
            assert not self.is_used
            self.is_used = True
            try:
                threading.Event().wait(0.01)
                if type(self).fails:
                    raise ConnectionError("it broke")
                return super().cat_file(path, start=start, end=end, **options)
            finally:
                self.is_used = False

    fsspec.register_implementation("alone", Alone, clobber=True)
    return Alone


def test_a_file_system_that_is_not_for_many_threads_is_used_by_one_at_a_time(tmp_path, alone):
    for k in range(64):
        (tmp_path / str(k)).write_bytes(bytes([k]) * 100)
    origin = open_origin(f"alone://{tmp_path}")
    listed = origin.list("")
    with ThreadPoolExecutor(32) as pool:
        read = pool.map(lambda k: origin.read(k, 0, 100, listed[k]).body, listed)
        assert list(read) == [bytes([int(k)]) * 100 for k in listed]
    assert 1 < len(alone.instances) <= NUM_ALONE


def test_one_that_has_failed_is_not_used_again(tmp_path, alone):
    (tmp_path / "a").write_bytes(b"a")
    origin = open_origin(f"alone://{tmp_path}")
    known = origin.look("a")
    with pytest.raises(Missing):  # that is no failure
        origin.look("b")
    alone.fails = True
    with pytest.raises(Again):
        origin.read("a", 0, 1, known)
    alone.fails = False
    assert len(alone.instances) == 1
    assert [origin.read("a", 0, 1, known).body for _ in range(20)] == [b"a"] * 20
    assert len(alone.instances) == 2
