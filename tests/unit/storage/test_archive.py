"""Archives in real origins: members are what was packed, of one archive, with few requests."""

import io
import random
import shutil
import subprocess
import tarfile
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from stoker.storage.archives import open_url
from stoker.storage.archives import opened as opened_archive
from stoker.storage.origins import (
    UNKNOWN,
    Again,
    Changed,
    Damaged,
    Denied,
    Entry,
    Missing,
    OriginError,
)
from stoker.storage.reading.blocks import Blocks
from stoker.storage.reading.file import BLOCK_NBYTES, file_of
from stoker.storage.reading.memory import Memory
from stoker.storage.reading.stats import StorageStats
from stoker.storage.serving.storage_process import Refused, _open
from tests.origin_server import OriginServer
from tests.web_proxy import WebProxy

NBYTES = 40_000
MEMBERS = {f"sub/{k:03d} ü.bin": random.Random(k).randbytes(NBYTES) for k in range(200)}
KINDS = ["zip", "small.zip", "tar", "tar.gz"]
PROTOCOLS = {"zip": "zip", "small.zip": "zip", "tar": "tar", "tar.gz": "tar"}
PLAIN = ["zip", "tar"]
HOW = {"gz": "w:gz", "tgz": "w:gz", "bz2": "w:bz2", "xz": "w:xz", "bare": "w:xz"}


def pack(at, members=MEMBERS, inside=""):
    if at.name.endswith("zip"):
        how = zipfile.ZIP_DEFLATED if at.name.endswith("small.zip") else zipfile.ZIP_STORED
        with zipfile.ZipFile(at, "w", how) as packed:
            for name, data in members.items():
                packed.writestr(inside + name, data)
        return
    with tarfile.open(at, HOW.get(at.name.rpartition(".")[2], "w")) as packed:
        for name, data in members.items():
            told = tarfile.TarInfo(inside + name)
            told.size, told.mtime = len(data), 1
            packed.addfile(told, io.BytesIO(data))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archives")
    for kind in KINDS:
        pack(folder / f"all of it.{kind}")
    return folder


@pytest.fixture
def serve():
    servers = []

    def start(folder):
        servers.append(OriginServer(folder))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def opened():
    origins = []

    def start(url):
        origins.append(open_url(url))
        return origins[-1]

    yield start
    for origin in origins:
        origin.close()


def whole(origin, path):
    known = origin.look(path)
    return bytes(origin.read(path, 0, known.nbytes, known).body)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["file", "web"])
def test_members_are_what_was_packed(folder, serve, opened, kind, where):
    at = f"file://{folder}/all of it" if where == "file" else f"{serve(folder).url}/all%20of%20it"
    origin = opened(f"{PROTOCOLS[kind]}::{at}.{kind}")
    assert origin.list("") == {"sub": Entry(True)}
    listed = origin.list("sub")
    assert {f"sub/{name}" for name in listed} == set(MEMBERS)
    for path in random.Random(0).sample(sorted(MEMBERS), 40):
        known = listed[path.removeprefix("sub/")]
        assert known == origin.look(path) and known.tag and known.nbytes == NBYTES
        assert origin.read(path, 0, NBYTES, known).body == MEMBERS[path]
        assert origin.read(path, 7, 1000, known).body == MEMBERS[path][7:1000]
    with pytest.raises(Missing):
        origin.look("sub/none.bin")


@pytest.mark.parametrize("kind", PLAIN)
def test_a_folder_in_an_archive_is_one(folder, opened, kind):
    origin = opened(f"{kind}://sub::file://{folder}/all of it.{kind}")
    assert {f"sub/{name}" for name in origin.list("")} == set(MEMBERS)
    assert whole(origin, "007 ü.bin") == MEMBERS["sub/007 ü.bin"]
    assert origin.url_of("007 ü.bin") == f"{kind}://sub/007 ü.bin::file://{folder}/all of it.{kind}"


def test_an_archive_of_a_folder_that_is_called_dot_is_that_folder(tmp_path, opened):
    pack(tmp_path / "dot.tar", inside="./")
    for folder in ("", "://sub"):
        origin = opened(f"tar{folder}::file://{tmp_path}/dot.tar")
        assert whole(origin, f"{'' if folder else 'sub/'}001 ü.bin") == MEMBERS["sub/001 ü.bin"]


def test_an_archive_in_an_archive_is_read_too(folder, tmp_path, serve, opened):
    inner = (folder / "all of it.tar").read_bytes()
    pack(tmp_path / "outer.zip", {"in/inner.tar": inner})
    origin = opened(f"tar::zip://in/inner.tar::{serve(tmp_path).url}/outer.zip")
    assert whole(origin, "sub/003 ü.bin") == MEMBERS["sub/003 ü.bin"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["file", "web"])
def test_an_archive_that_was_replaced_is_not_read(tmp_path, serve, opened, kind, where):
    at = tmp_path / f"a.{kind}"
    pack(at)
    url = f"file://{at}" if where == "file" else f"{serve(tmp_path).url}/a.{kind}"
    origin = opened(f"{PROTOCOLS[kind]}::{url}")
    first, last = min(MEMBERS), max(MEMBERS)
    known = origin.look(last)
    whole(origin, first)
    # As large, with members at the same places.
    pack(at, {name: data[::-1] for name, data in MEMBERS.items()})
    with pytest.raises(Changed):
        origin.read(last, 0, NBYTES, known)


@pytest.mark.parametrize("kind", KINDS)
def test_members_of_another_archive_have_another_tag(tmp_path, opened, kind):
    at = tmp_path / f"a.{kind}"
    pack(at)
    before = opened(f"{PROTOCOLS[kind]}::file://{at}").look(min(MEMBERS))
    assert opened(f"{PROTOCOLS[kind]}::file://{at}").look(min(MEMBERS)) == before
    pack(at, {name: data[::-1] for name, data in MEMBERS.items()})
    origin = opened(f"{PROTOCOLS[kind]}::file://{at}")
    assert origin.look(min(MEMBERS)) != before
    with pytest.raises(Changed):  # what an earlier run has known
        origin.read(min(MEMBERS), 0, NBYTES, before)


def test_members_of_a_compressed_tar_are_read_in_order_with_few_requests(folder, serve, opened):
    server = serve(folder)
    origin = opened(f"tar::{server.url}/all%20of%20it.tar.gz")
    nbytes = sum(map(len, MEMBERS.values()))
    num, sent = server.num("GET"), server.num_nbytes
    for path in sorted(MEMBERS):
        assert origin.reads_in_order(path) and whole(origin, path) == MEMBERS[path]
    assert server.num("GET") - num < 20 and server.num_nbytes - sent < 2 * nbytes


@pytest.mark.parametrize("fault", ["cut", "drop", 503])
@pytest.mark.parametrize("kind", ["tar.gz", "tar.bz2", "tar.xz", "large.zip"])
def test_what_fails_while_something_is_unpacked_changes_nothing(
    tmp_path, serve, opened, kind, fault
):
    if kind == "large.zip":
        members = {name: data * 40 for name, data in list(MEMBERS.items())[:8]}
        with zipfile.ZipFile(tmp_path / f"a.{kind}", "w", zipfile.ZIP_DEFLATED) as packed:
            for name, data in members.items():
                packed.writestr(name, data)
    else:
        members = MEMBERS
        pack(tmp_path / f"a.{kind}")
    server = serve(tmp_path)
    failed = []

    def fail(method, path, number):
        if number % 3 == 0:
            failed.append(number)
            return fault
        return None

    server.fault = fail  # while it is opened, too
    origin = opened(f"{kind[:3] if kind[:3] == 'tar' else 'zip'}::{server.url}/a.{kind}")
    for path in random.Random(4).sample(sorted(members), 8):
        assert whole(origin, path) == members[path]
    assert failed


@pytest.mark.parametrize("fault", ["cut", "drop", 503])
def test_half_an_answer_is_none_and_the_next_try_is_whole(folder, serve, opened, fault):
    server = serve(folder)
    origin = opened(f"zip::{server.url}/all%20of%20it.zip")
    path = sorted(MEMBERS)[100]
    known = origin.look(path)
    server.fault = lambda method, asked, number: fault
    for _ in range(3):
        with pytest.raises(Again):
            origin.read(path, 0, NBYTES, known)
    server.fault = lambda method, asked, number: None
    assert origin.read(path, 0, NBYTES, known).body == MEMBERS[path]


def test_a_file_whose_size_is_not_known_is_read_to_its_end(folder, opened):
    origin = opened(f"zip::file://{folder}/all of it.zip")
    piece = origin.read(min(MEMBERS), 0, 1 << 20, Entry(False, UNKNOWN))
    assert piece.body == MEMBERS[min(MEMBERS)] and piece.known.nbytes == NBYTES


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_archive_is_refused(tmp_path, opened, kind):
    (tmp_path / f"no.{kind}").write_bytes(b"nothing that was packed" * 100)
    with pytest.raises(OriginError):
        opened(f"{PROTOCOLS[kind]}::file://{tmp_path}/no.{kind}")
    with pytest.raises(OriginError):
        opened(f"{PROTOCOLS[kind]}::file://{tmp_path}/none.{kind}")


def test_user_and_password_are_shown_nowhere(folder, serve, opened):
    server = serve(folder)
    at = server.url.replace("//", "//me:secret@")
    origin = opened(f"zip::{at}/all%20of%20it.zip?sign=secret")
    assert "secret" not in origin.url + origin.url_of("a") + origin.identity
    assert whole(origin, min(MEMBERS)) == MEMBERS[min(MEMBERS)]
    with pytest.raises(Refused) as caught:
        _open(f"zip::{at}/none.zip?sign=secret", None)
    assert "secret" not in str(caught.value) and "/none.zip cannot be opened" in str(caught.value)


@pytest.fixture
def blocks():
    stats = StorageStats()
    blocks = Blocks(Memory(1 << 30, stats), None, stats, limit_s=5.0)
    yield blocks
    blocks.close()


@pytest.mark.parametrize("kind", PLAIN)
def test_of_what_is_not_compressed_each_is_one_request_and_many_are_on_their_way(
    folder, serve, opened, blocks, kind
):
    server = serve(folder)
    origin = opened(f"{kind}::{server.url}/all%20of%20it.{kind}")
    num, sent = server.num("GET"), server.num_nbytes
    files = {path: file_of(origin, path, origin.look(path)) for path in MEMBERS}
    for file in files.values():
        blocks.fetch_ahead(file, 0, 0)
    for path in random.Random(2).sample(sorted(MEMBERS), len(MEMBERS)):
        assert blocks.read(files[path], 0, NBYTES) == MEMBERS[path]
    assert server.num("GET") - num == len(MEMBERS)
    assert server.num_nbytes - sent < len(MEMBERS) * (NBYTES + 200)
    assert not blocks._pool._threads


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_member_is_read_by_parts(tmp_path, serve, opened, blocks, kind):
    data = random.Random(3).randbytes(6 << 20)
    pack(tmp_path / f"a.{kind}", {"before": b"x", "large": data, "after": b"y"})
    server = serve(tmp_path)
    origin = opened(f"{PROTOCOLS[kind]}::{server.url}/a.{kind}")
    file = file_of(origin, "large", origin.look("large"))
    sent = server.num_nbytes
    at = 4 * BLOCK_NBYTES + 100
    assert blocks.read(file, at, 1000) == data[at : at + 1000]
    if kind in PLAIN:
        assert server.num_nbytes - sent <= BLOCK_NBYTES + 1000
    assert blocks.read(file, 0, len(data)) == data


def test_every_kind_of_member_of_a_tar_is_what_tar_makes_of_it(tmp_path, opened):
    with tarfile.open(tmp_path / "a.tar", "w") as packed:
        for name, kind, data, target in (
            ("./file", tarfile.REGTYPE, b"first", ""),
            ("file", tarfile.REGTYPE, b"the last one counts", ""),
            ("hard", tarfile.LNKTYPE, b"", "file"),
            ("folder//sub/./soft", tarfile.SYMTYPE, b"", "../../file"),
            ("twice", tarfile.REGTYPE, b"a file before", ""),
            ("twice", tarfile.LNKTYPE, b"", "./file"),
            ("/absolute", tarfile.REGTYPE, b"the last one counts", ""),
            ("links", tarfile.SYMTYPE, b"", "folder"),
            ("more", tarfile.SYMTYPE, b"", "links/sub"),
            ("empty", tarfile.REGTYPE, b"", ""),
            ("none", tarfile.SYMTYPE, b"", "nowhere"),
            ("round", tarfile.SYMTYPE, b"", "round"),
            ("out", tarfile.SYMTYPE, b"", "../file"),
            ("away", tarfile.SYMTYPE, b"", "/etc/shadow"),
            ("../above", tarfile.REGTYPE, b"x", ""),
            ("pipe", tarfile.FIFOTYPE, b"", ""),
        ):
            told = tarfile.TarInfo(name)
            told.type, told.size, told.linkname = kind, len(data), target
            packed.addfile(told, io.BytesIO(data))
    origin = opened(f"tar::file://{tmp_path}/a.tar")
    assert set(origin.list("")) == {
        "file", "hard", "twice", "absolute", "folder", "links", "more", "empty",
    }  # fmt: skip
    assert origin.list("links") == {"sub": Entry(True)} and set(origin.list("more")) == {"soft"}
    for name in (
        "file",
        "hard",
        "folder/sub/soft",
        "links/sub/soft",
        "more/soft",
        "twice",
        "absolute",
    ):
        assert whole(origin, name) == b"the last one counts"
    assert whole(origin, "empty") == b""
    for name in ("none", "round", "out", "away", "pipe", "links/none", "file/x"):
        with pytest.raises(Missing):
            origin.look(name)


@pytest.mark.skipif(shutil.which("tar") is None, reason="needs tar")
def test_files_with_holes_are_read_whole(tmp_path, opened):
    with (tmp_path / "holes").open("wb") as file:
        for at in (0, 1 << 20, 3 << 20):
            file.seek(at)
            file.write(random.Random(at).randbytes(5000))
        file.truncate(4 << 20)
    data = (tmp_path / "holes").read_bytes()
    for name, how in (("a.tar", "-cf"), ("a.tar.gz", "-czf")):
        words = ["tar", "--sparse", how, str(tmp_path / name), "-C", str(tmp_path), "holes"]
        subprocess.run(words, check=True)
        assert (tmp_path / name).stat().st_size < 1 << 20
        origin = opened(f"tar::file://{tmp_path}/{name}")
        assert whole(origin, "holes") == data
        known = origin.look("holes")
        for start, end in ((4000, 6000), ((1 << 20) - 10, (1 << 20) + 10), (2 << 20, 2_200_000)):
            assert origin.read("holes", start, end, known).body == data[start:end]


def test_a_member_behind_a_link_is_where_unpacking_puts_it(tmp_path, opened):
    with tarfile.open(tmp_path / "a.tar", "w") as packed:
        for name, kind, data, target in (
            ("e/x", tarfile.REGTYPE, b"old", ""),
            ("d", tarfile.SYMTYPE, b"", "e"),
            ("d/x", tarfile.REGTYPE, b"new", ""),
            ("d/y", tarfile.REGTYPE, b"more", ""),
            ("gone", tarfile.SYMTYPE, b"", "../.."),
            ("gone/x", tarfile.REGTYPE, b"", ""),
        ):
            told = tarfile.TarInfo(name)
            told.type, told.size, told.linkname = kind, len(data), target
            packed.addfile(told, io.BytesIO(data))
    origin = opened(f"tar::file://{tmp_path}/a.tar")
    assert set(origin.list("")) == {"d", "e"} and set(origin.list("d")) == {"x", "y"}
    assert whole(origin, "e/x") == whole(origin, "d/x") == b"new"
    assert whole(origin, "e/y") == b"more"


def test_readers_of_a_compressed_tar_do_not_send_each_other_back(folder, serve, opened):
    server = serve(folder)
    origin = opened(f"tar::{server.url}/all%20of%20it.tar.gz")
    paths, sent = sorted(MEMBERS), server.num_nbytes
    for one, other in zip(paths[:100], paths[100:], strict=True):
        assert whole(origin, one) == MEMBERS[one] and whole(origin, other) == MEMBERS[other]
    assert server.num_nbytes - sent < 3 * sum(map(len, MEMBERS.values()))


def test_readers_of_a_compressed_tar_that_falls_silent_do_not_wait_one_after_another(
    folder, serve, opened, monkeypatch
):
    server = serve(folder)
    origin = opened(f"tar::{server.url}/all%20of%20it.tar.gz")
    listed = origin.list("sub")
    gate, waiting, num_asked = threading.Event(), threading.Semaphore(0), []

    def silent(*_):
        num_asked.append(1)
        waiting.release()
        gate.wait(20)
        raise Again("it says nothing")

    class Lock:
        def __init__(self, inner):
            self.inner = inner

        def __enter__(self):
            waiting.release()
            self.inner.acquire()

        def __exit__(self, *_):
            self.inner.release()

    monkeypatch.setattr(opened_archive, "LIMIT_S", 0.0)
    monkeypatch.setattr(origin._outer, "read", silent)
    origin._lock = Lock(origin._lock)

    def read(name):
        with pytest.raises(Again) as raised:
            origin.read(f"sub/{name}", 0, NBYTES, listed[name])
        return str(raised.value)

    with ThreadPoolExecutor(6) as pool:
        said = [pool.submit(read, name) for name in sorted(listed)[100:106]]
        for _ in range(6 + 1):
            assert waiting.acquire(timeout=20)
        gate.set()
        assert len({each.result() for each in said}) == 1
    assert len(num_asked) == 1
    assert read(sorted(listed)[100]) == "it says nothing"  # who comes later asks anew
    assert len(num_asked) == 2


def test_a_server_without_ranges_is_refused(tmp_path, opened):
    pack(tmp_path / "a.zip")
    server = OriginServer(tmp_path, ranges=False)
    try:
        with pytest.raises(Denied, match="knows no ranges"):
            opened(f"zip::{server.url}/a.zip")
    finally:
        server.stop()


def test_a_tar_that_is_damaged_in_its_middle_is_no_shorter_one(tmp_path, opened):
    pack(tmp_path / "a.tar")
    data = bytearray((tmp_path / "a.tar").read_bytes())
    with tarfile.open(tmp_path / "a.tar") as packed:
        at = packed.getmembers()[50].offset
    data[at + 5] ^= 1
    (tmp_path / "a.tar").write_bytes(data)
    with pytest.raises(Damaged, match=f"byte {at:,}"):
        opened(f"tar::file://{tmp_path}/a.tar")
    (tmp_path / "a.tar").write_bytes(data[: at - 5000])  # cut short
    with pytest.raises(Damaged):
        opened(f"tar::file://{tmp_path}/a.tar")


@pytest.mark.parametrize("name", ["a.tgz", "a.bare"])
def test_how_a_tar_is_compressed_is_seen_by_its_bytes(tmp_path, opened, name):
    pack(tmp_path / name, dict(list(MEMBERS.items())[:3]))
    origin = opened(f"tar::file://{tmp_path}/{name}")
    assert whole(origin, min(MEMBERS)) == MEMBERS[min(MEMBERS)]


def test_names_of_archives_on_the_web_are_sent_as_they_are_written(
    tmp_path, serve, opened, monkeypatch
):
    pack(tmp_path / "a.zip")
    server, proxy = serve(tmp_path), WebProxy()
    monkeypatch.setenv("http_proxy", f"http://{proxy.at}")
    url = f"{server.url}/folder%2F..%2Fa.zip?alt=media"
    try:
        with pytest.raises(OriginError):
            opened(f"zip::{url}")
        assert {target for _, target in proxy.asked} == {url}
    finally:
        proxy.stop()


def test_an_archive_behind_a_cache_of_fsspec_s_is_read(tmp_path, opened):
    pack(tmp_path / "a.zip")
    origin = opened(f"zip::simplecache::file://{tmp_path}/a.zip")
    assert whole(origin, min(MEMBERS)) == MEMBERS[min(MEMBERS)]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_members_of_a_zip_that_others_have_packed_are_read(tmp_path, opened):
    """What is extra in a local header is not what the list has; something lies before all; one name twice."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        for name, data in (("a", b"first"), ("b", b"second" * 1000), ("a", b"the last one counts")):
            told = zipfile.ZipInfo(name)
            told.extra = b"\x99\x99\x04\x00abcd"  # a field that nobody knows
            packed.writestr(told, data)
            told.extra = b""  # of the list
    with zipfile.ZipFile(tmp_path / "a.zip", "a") as packed:
        told = zipfile.ZipInfo("folder/link")
        told.create_system, told.external_attr = 3, 0o120777 << 16
        packed.writestr(told, "../b")
        packed.writestr("/data//./c", b"its name is another")
    (tmp_path / "b.zip").write_bytes(b"#!/bin/sh\n" + (tmp_path / "a.zip").read_bytes())
    for name in ("a.zip", "b.zip"):
        origin = opened(f"zip::file://{tmp_path}/{name}")
        assert whole(origin, "a") == b"the last one counts"
        assert whole(origin, "b") == b"second" * 1000
        known = origin.look("b")
        assert origin.read("b", 6, 12, known).body == b"second"
        assert whole(origin, "folder/link") == whole(origin, "b")
        assert whole(origin, "data/c") == b"its name is another"


def test_what_is_encrypted_is_an_error_at_once(tmp_path, opened):
    pack(tmp_path / "a.zip", {"secret": b"x" * 1000})
    data = bytearray((tmp_path / "a.zip").read_bytes())
    data[6] |= 1  # in its header, and in the list
    data[data.index(b"PK\1\2") + 8] |= 1
    (tmp_path / "a.zip").write_bytes(data)
    origin = opened(f"zip::file://{tmp_path}/a.zip")
    with pytest.raises(Damaged, match="encrypted"):
        whole(origin, "secret")


@pytest.mark.parametrize("kind", ["zip", "small.zip"])
def test_a_flipped_bit_in_a_member_is_found(tmp_path, opened, kind):
    at = tmp_path / f"a.{kind}"
    pack(at)
    data = bytearray(at.read_bytes())
    data[len(data) // 2] ^= 1
    at.write_bytes(data)
    origin = opened(f"zip::file://{at}")
    wrong = []
    for path in MEMBERS:
        try:
            assert whole(origin, path) == MEMBERS[path]
        except Damaged:
            wrong.append(path)
    assert len(wrong) == 1
