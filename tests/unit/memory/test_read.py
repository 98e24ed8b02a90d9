"""Each byte that a sample reads is of a file that is known to have been opened, or the sample is not kept."""

import _posixshmem
import ctypes
import errno
import importlib.resources
import io
import linecache
import mmap
import os
import pkgutil
import sys
import zipfile
from pathlib import Path

import numpy as np
import PIL
import pytest
import torch
import torchvision
from PIL import ImageFont
from torch import from_file
from torchvision.io import read_file, read_image

from stoker.memory.watch import Asked, Evidence, Opened, identities, tell_of_readers

TEXT = b"some bytes of a file\n" * (io.DEFAULT_BUFFER_SIZE // 8)  # two buffers and a half
LATER_NS = 1 << 62  # as if each file had been left alone for long


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text").write_bytes(TEXT)
    return str(tmp_path / "text")


@pytest.fixture
def seen(tmp_path):
    (tmp_path / "seen").write_bytes(TEXT)
    return tmp_path / "seen"


@pytest.fixture
def watched():
    """Make a sample as one that is kept; returns the files that it is of, None if it is not kept."""
    opened, asked = Opened(), Asked()
    tell_of_readers(opened, asked)

    def made(make):
        opened.begin()
        try:
            asked.run(make)
        finally:
            paths, trace = opened.end()
        told, there = identities(paths, LATER_NS), asked.identities(paths, LATER_NS)
        is_kept = not trace and opened.is_explained and told is not None and there is not None
        return [each[0] for each in told] if is_kept else None

    return made


# -- files that were open before -----------------------------------------------------------------------


def by_pread(path):
    fd = os.open(path, os.O_RDONLY)
    return lambda: os.pread(fd, 4, 40), lambda: os.close(fd)


def by_preadv(path):
    fd = os.open(path, os.O_RDONLY)
    return lambda: os.preadv(fd, [bytearray(4)], 40), lambda: os.close(fd)


def by_a_file_of_a_number(path):
    fd = os.open(path, os.O_RDONLY)
    return lambda: open(fd, "rb", closefd=False).read(4), lambda: os.close(fd)


def by_a_copy_of_a_number(path):
    fd = os.open(path, os.O_RDONLY)

    def read():
        with os.fdopen(os.dup(fd), "rb") as file:
            return file.read(4)

    return read, lambda: os.close(fd)


def by_an_open_file(path):
    file = Path(path).open("rb", buffering=0)  # noqa: SIM115 - closed by the test
    return lambda: file.read(4), file.close


def by_an_open_archive(path):
    with zipfile.ZipFile(f"{path}.zip", "w") as made:
        made.write(path, "member")
    archive = zipfile.ZipFile(f"{path}.zip")
    return lambda: archive.read("member"), archive.close


def by_a_file_that_is_gone(path):
    fd = os.open(path, os.O_RDONLY)
    Path(path).unlink()
    return lambda: os.read(fd, 4), lambda: os.close(fd)


def by_a_mapping_of_a_number(path):
    fd = os.open(path, os.O_RDONLY)
    return lambda: bytes(mmap.mmap(fd, 0, prot=mmap.PROT_READ)), lambda: os.close(fd)


OPEN_BEFORE = [
    by_pread, by_preadv, by_a_file_of_a_number, by_a_copy_of_a_number, by_an_open_file, by_an_open_archive,
    by_a_file_that_is_gone, by_a_mapping_of_a_number,
]  # fmt: skip


@pytest.mark.parametrize("form", OPEN_BEFORE)
def test_what_is_read_of_a_file_that_was_open_before_is_not_kept(form, text, seen, watched):
    read, close = form(text)
    try:
        assert watched(seen.read_bytes) == [str(seen)]
        assert watched(lambda: (seen.read_bytes()[:9], read())) is None
        assert watched(lambda: (seen.open("rb").close(), read())) is None
        assert watched(seen.read_bytes) == [str(seen)]
    finally:
        close()


def test_a_file_that_a_sample_leaves_open_is_watched_from_then_on(text, seen, watched):
    held = []
    assert watched(lambda: held.append(os.open(text, os.O_RDONLY))) == [text]
    assert watched(lambda: (seen.read_bytes(), os.read(held[0], 4))) is None
    os.close(held[0])
    assert watched(seen.read_bytes) == [str(seen)]


def test_where_nothing_can_be_watched_nothing_is_kept(text, seen, watched, monkeypatch):
    monkeypatch.setattr(ctypes.CDLL, "inotify_init1", lambda self, flags: -1, raising=False)
    with Path(text).open("rb"):
        assert watched(seen.read_bytes) is None


def test_where_there_are_no_more_descriptors_nothing_is_kept(seen, watched, monkeypatch):
    def dup(fd):
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "dup", dup)
    assert watched(seen.read_bytes) is None


def test_bytes_of_a_file_that_compiled_code_opened_unseen_are_not_kept(text, watched):
    """However few they are, and though none was opened that is seen."""
    libc = ctypes.CDLL(None)
    buffer = ctypes.create_string_buffer(4)

    def read():
        fd = libc.open(os.fsencode(text), os.O_RDONLY)
        libc.read(fd, buffer, 4)
        libc.close(fd)

    assert watched(lambda: 0) == []
    assert watched(read) is None


def test_what_is_read_apart_is_not_the_samples(text):
    opened = Opened()
    opened.begin()
    Path(text).read_bytes()
    with opened.apart():
        Path("/proc/self/maps").read_bytes()
    assert opened.end() == ([text], "") and opened.is_explained


def test_one_counter_of_bytes_is_open_however_many_watch(watched):
    assert watched(lambda: 0) == []
    others = [Opened() for _ in range(3)]
    for opened in others:
        opened.begin()
        opened.end()
        assert opened.is_explained
    links = [os.path.realpath(fd.path) for fd in os.scandir("/proc/self/fd")]
    assert sum(link.endswith("/io") for link in links) == 1


# -- mappings ------------------------------------------------------------------------------------------


def test_shared_memory_that_a_sample_maps_is_not_kept(watched):
    """As SharedMemory(name) does."""
    name = f"/test-of-stoker-{os.getpid()}"
    made = _posixshmem.shm_open(name, os.O_CREAT | os.O_RDWR, mode=0o600)
    os.ftruncate(made, 64)

    def attach():
        fd = _posixshmem.shm_open(name, os.O_RDONLY)
        bytes(mmap.mmap(fd, 64, prot=mmap.PROT_READ))
        os.close(fd)

    try:
        assert watched(attach) is None
    finally:
        os.close(made)
        _posixshmem.shm_unlink(name)


def test_a_mapped_file_in_memory_is_not_kept(watched):
    path = f"/dev/shm/test-of-stoker-{os.getpid()}"
    Path(path).write_bytes(TEXT)
    try:
        assert watched(lambda: bytes(np.memmap(path, np.uint8, "r")[:4])) is None
        assert watched(lambda: Path(path).read_bytes()) == [path]
    finally:
        Path(path).unlink()


def by_numpy(path):
    return np.memmap(path, np.uint8, "r")[3]


def by_torch(path):
    return torch.from_file(path, size=4, dtype=torch.uint8).tolist()


def by_a_storage(path):
    return torch.UntypedStorage.from_file(path, False, 4)


def by_another_name(path):
    return read_file(path)


def by_its_module(path):
    return torchvision.io.image.read_file(path=path)


@pytest.mark.parametrize("read", [by_numpy, by_torch, by_a_storage, by_another_name, by_its_module])
def test_a_file_that_is_mapped_is_noted(read, text, watched):
    assert watched(lambda: read(text)) == [text]


def test_an_image_that_is_read_by_another_name_is_noted(tmp_path, watched):
    path = str(tmp_path / "image.png")
    PIL.Image.new("RGB", (8, 8)).save(path)
    assert watched(lambda: read_image(path)) == [path]


FONTS = [
    Path("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf"),
    *Path("/usr/share/fonts").rglob("*.ttf"),
]


@pytest.mark.skipif(not any(path.exists() for path in FONTS), reason="needs a font")
@pytest.mark.parametrize("make", [ImageFont.truetype, ImageFont.FreeTypeFont])
def test_a_font_is_noted(make, watched):
    path = str(next(path for path in FONTS if path.exists()))
    assert watched(lambda: make(path, 12).getmask("text")) == [path]
    held = make(path, 12)
    assert watched(lambda: held.font_variant(size=14).getmask("text")) == [path]


# -- what Python's own loaders read --------------------------------------------------------------------


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with a file of data; returns the file."""
    folder = tmp_path / "package_of_data"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "words.txt").write_text("words")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("package_of_data")
    yield folder / "words.txt"
    del sys.modules["package_of_data"]


def by_pkgutil():
    return pkgutil.get_data("package_of_data", "words.txt")


def by_a_loader():
    module = sys.modules["package_of_data"]
    return module.__loader__.get_data(f"{module.__path__[0]}/words.txt")


def by_resources():
    return importlib.resources.files("package_of_data").joinpath("words.txt").read_text()


def by_an_open_resource():
    with importlib.resources.open_text("package_of_data", "words.txt") as file:
        return file.read()


@pytest.mark.filterwarnings("ignore:open_text is deprecated:DeprecationWarning")
@pytest.mark.parametrize("read", [by_pkgutil, by_a_loader, by_resources, by_an_open_resource])
def test_a_packages_data_are_noted(read, package, watched):
    read()  # what is imported for it
    assert watched(read) == [str(package)]


@pytest.mark.parametrize("read", [linecache.getline, lambda path, _: linecache.getlines(path)])
def test_lines_that_python_remembers_are_not_kept(read, text, watched):
    read(text, 3)
    assert watched(lambda: read(text, 3)) is None


# -- what is heard while a place learns ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "why"),
    [
        (lambda fd, path: os.pread(fd, 4, 0), "calls posix.pread"),
        (lambda fd, path: os.preadv(fd, [bytearray(4)], 0), "calls posix.preadv"),
        (lambda fd, path: os.close(os.dup(fd)), "calls posix.dup"),
        (lambda fd, path: from_file(path, size=4), "calls torch.from_file"),
        (lambda fd, path: torch.from_file(path, size=4), None),
    ],
)
def test_a_read_past_what_is_heard_of_is_told(read, why, text, watched):
    heard = []
    evidence = Evidence(heard.append)
    with Path(text).open("rb") as file:
        fd = file.fileno()
        evidence.begin()
        read(fd, text)
        evidence.end()
    assert heard[:1] == ([why] if why else [])
