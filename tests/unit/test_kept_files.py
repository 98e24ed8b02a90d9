"""The folder of --cache-disk: what is not this user's alone is neither read nor written, and told.

Each case is played by both that use it: remembered samples, and files of mounts.
"""

import os
import socket

import pytest

from stoker import kept_files
from stoker.clock import now_s
from stoker.kept_files import NAME, Entry, KeptFiles, slot_of
from stoker.memory.store import DiskWish
from stoker.memory.store.disk import Disk
from stoker.storage.reading.disk import Disk as Blocks
from stoker.storage.reading.stats import StorageStats

MUCH = 1 << 32
KEY = b"0123456789abcdef"
NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


class Samples:
    """Remembered samples in a folder."""

    values, index = ".values", ".index"

    def __init__(self, path, keeps=True):
        self._disk = Disk(DiskWish(path, MUCH, keeps))

    def put(self, value):
        self._disk.open_seats([0])
        assert self._disk.put(0, KEY, [memoryview(value)], 1)

    def find(self):
        entry = self._disk.find(KEY)
        found = None if entry is None else self._disk.read(entry)
        return None if found is None else bytes(found)

    def close(self):
        pass


class Files:
    """Blocks of files of mounts in one."""

    values, index = ".blocks", ".blockindex"

    def __init__(self, path, keeps=True):
        self._disk = Blocks(path, MUCH, keeps, StorageStats(), lambda _: None)

    def put(self, value):
        self._disk.add((KEY, 0), value)
        self._disk.flush()

    def find(self):
        return self._disk.find((KEY, 0))

    def close(self):
        self._disk.close()


@pytest.fixture(params=[Samples, Files], ids=["samples", "files"])
def kind(request):
    return request.param


@pytest.fixture
def opened(kind):
    made = []

    def start(path, **how):
        made.append(kind(path, **how))
        return made[-1]

    yield start
    for each in made:
        each.close()


def give_away(path, folder):
    os.chown(path, NOBODY, NOBODY)


def open_to_a_group(path, folder):
    path.chmod(path.stat().st_mode | 0o020)


def open_to_all(path, folder):
    path.chmod(path.stat().st_mode | 0o002)


def become_a_link(path, folder):
    path.rename(folder / "elsewhere")
    path.symlink_to(folder / "elsewhere")


ATTACKS = {
    "another user's": pytest.param(give_away, marks=needs_root),
    "open to a group": open_to_a_group,
    "open to all": open_to_all,
    "a link": become_a_link,
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize("keeps", [True, False])
def test_a_folder_that_is_not_ones_own_alone_is_refused_and_told(attack, keeps, opened, tmp_path):
    folder = tmp_path / "disk" / NAME
    opened(tmp_path / "disk").put(b"good" * 100)
    before = sorted(path.name for path in folder.iterdir())
    attack(folder, tmp_path)
    with pytest.raises(OSError, match=f"{NAME}|ot a directory"):
        opened(tmp_path / "disk", keeps=keeps)
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_folder_that_is_opened_to_others_during_a_run_is_read_no_more(tmp_path):
    files = KeptFiles(tmp_path, MUCH, ".values", ".index")
    files.write("a", [b"mine"])
    files.path.chmod(0o770)
    assert files.read("a", MUCH) == b""
    with pytest.raises(OSError, match="other users"):
        files.write("b", [b"mine"])
    assert [path.name for path in files.path.iterdir()] == ["a"]


def become_a_fifo(path, folder):
    path.unlink()
    os.mkfifo(path)


def become_a_socket(path, folder):
    path.unlink()
    with socket.socket(socket.AF_UNIX) as bound:
        here = os.open(".", os.O_RDONLY)
        os.chdir(path.parent)  # a socket's path is short
        bound.bind(path.name)
        os.fchdir(here)
        os.close(here)


@pytest.mark.parametrize(
    "attack",
    [*ATTACKS.values(), become_a_fifo, become_a_socket],
    ids=[*ATTACKS, "a FIFO", "a socket"],
)
@pytest.mark.parametrize("which", ["values", "index"])
def test_a_file_that_is_not_ones_own_alone_is_a_miss(attack, which, opened, kind, tmp_path):
    opened(tmp_path).put(b"good" * 100)
    (path,) = (tmp_path / NAME).glob(f"*{getattr(kind, which)}")
    attack(path, tmp_path)
    later = opened(tmp_path)
    assert later.find() is None
    later.put(b"new" * 100)
    assert later.find() == b"new" * 100


def test_what_is_safe_is_found(opened, tmp_path):
    opened(tmp_path).put(b"good" * 100)
    assert opened(tmp_path).find() == b"good" * 100


def test_an_index_of_holes_takes_no_time(opened, kind, tmp_path):
    opened(tmp_path).put(b"good" * 100)
    for run in range(8):
        with (tmp_path / NAME / f"{str(run) * 12}-0{kind.index}").open("w") as file:
            file.truncate(2 << 30)
    began_s = now_s()
    opened(tmp_path)
    assert now_s() - began_s < 10  # of which each took more than 60


@pytest.mark.parametrize(
    ("offset", "nbytes"), [((1 << 64) - 1, 400), (1 << 40, 400), (0, 401), (0, (1 << 32) - 1)]
)
def test_a_value_that_would_lie_beyond_its_file_is_a_miss(offset, nbytes, opened, kind, tmp_path):
    first = opened(tmp_path)
    first.put(b"good" * 100)
    (index,) = (tmp_path / NAME).glob(f"*{kind.index}")
    key, *_ = kept_files.BODY.unpack_from(index.read_bytes())
    index.write_bytes(slot_of(key, Entry(offset, nbytes, 1, 0, 7)))
    assert opened(tmp_path).find() is None


def test_a_new_file_has_a_name_that_nobody_guesses_and_replaces_none(tmp_path):
    files = KeptFiles(tmp_path, MUCH, ".values", ".index")
    assert len(files.run) == 24
    victim = tmp_path / "precious"
    victim.write_bytes(b"precious")
    for suffix in (".values", ".index"):
        (files.path / (files.name_of(0) + suffix)).symlink_to(victim)
    with pytest.raises(OSError, match="symbolic"):
        files.open_new(files.name_of(0), is_kept=True)
    assert victim.read_bytes() == b"precious"


def test_a_seats_next_worker_writes_on_to_its_files(tmp_path):
    files = KeptFiles(tmp_path, MUCH, ".values", ".index")
    for text in (b"first", b"second"):
        for fd in files.open_new(files.name_of(0), is_kept=True):
            os.write(fd, text)
            os.close(fd)
    assert files.read(f"{files.name_of(0)}.values", MUCH) == b"second"


def test_no_more_of_a_file_is_read_than_the_folder_may_hold(tmp_path):
    files = KeptFiles(tmp_path, 10, ".values", ".index")
    files.write("a", [b"0123456789", b"more"])
    assert files.read("a", MUCH) == b"0123456789"
    assert files.read("a", 4) == b"0123"


def test_a_folder_of_too_many_files_is_refused(opened, tmp_path, monkeypatch):
    monkeypatch.setattr(kept_files, "_MAX_FILES", 10)
    opened(tmp_path)
    for k in range(11):
        (tmp_path / NAME / f"{k}").touch()
    with pytest.raises(OSError, match="more than 10 files"):
        opened(tmp_path)
