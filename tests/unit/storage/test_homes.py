"""Who is asked for a block first: the same for all machines, evenly, and never one that has failed."""

from collections import Counter

import pytest

from stoker.storage.origins import UNKNOWN, Again, Answer, Denied, Entry, Piece
from stoker.storage.peers.homes import Homes, Member, PeerSource
from stoker.storage.reading.file import MERGED_BLOCKS, file_of
from tests.unit.storage.fake_origin import FakeOrigin

URL = FakeOrigin.url
NAMES = ["a", "b", "c", "d"]


def member(name, urls=(URL,)):
    return Member(name, f"node of {name}", "127.0.0.1", 1, "", urls)


def homes(names=NAMES, urls=(URL,)):
    found = {name: Homes(name) for name in names}
    for own in found.values():
        for name in names:
            own.add(member(name, urls), lambda _: None)
    return found


def file(path="a.jpg", **known):
    return file_of(FakeOrigin({}), path, Entry(False, 40_000, **{"tag": "1"} | known))


def home_by(own, homes_of, path, first=0):
    source = homes_of.source_of(file(path), first)
    return own if source is None else source.peer.member.name


def test_all_machines_agree_and_each_is_the_home_of_its_share():
    found = homes()
    told = [{home_by(own, each, f"{k}.jpg") for own, each in found.items()} for k in range(1000)]
    assert all(len(each) == 1 for each in told)
    counts = Counter(next(iter(each)) for each in told)
    assert set(counts) == set(NAMES) and min(counts.values()) > 180


def test_a_large_files_pieces_have_different_homes_and_a_piece_has_one():
    found = homes()["a"]
    pieces = [home_by("a", found, "big", first) for first in range(64 * MERGED_BLOCKS)]
    assert set(pieces) == set(NAMES)
    for at in range(0, len(pieces), MERGED_BLOCKS):
        assert len(set(pieces[at : at + MERGED_BLOCKS])) == 1


def test_where_a_machine_has_gone_only_its_own_blocks_have_another_home():
    found = homes()["a"]
    before = {k: home_by("a", found, f"{k}") for k in range(300)}
    found.remove("c")
    after = {k: home_by("a", found, f"{k}") for k in range(300)}
    assert "c" not in after.values()
    assert all(after[k] == home for k, home in before.items() if home != "c")
    found.clear()
    assert {home_by("a", found, f"{k}") for k in range(300)} == {"a"}


def test_one_that_has_failed_is_left_out_for_a_while(monkeypatch):
    found = homes(["a", "b"])["a"]
    path = next(f"{k}" for k in range(100) if home_by("a", found, f"{k}") == "b")
    found.has_failed(found.source_of(file(path), 0))
    assert home_by("a", found, path) == "a"
    monkeypatch.setattr("stoker.storage.peers.homes.now_s", lambda: 1e12)
    assert home_by("a", found, path) == "b"


@pytest.mark.parametrize(
    "asked",
    [
        file(tag="", mtime_ns=0),  # nothing tells whether theirs are the same bytes
        file()._replace(hint=Entry(False, 3)),  # the origin says in a word whether it has changed
    ],
)
def test_what_only_the_origin_can_tell_is_asked_there(asked):
    found = homes()["a"]
    assert {found.source_of(asked, first) for first in range(0, 1000, MERGED_BLOCKS)} == {None}


def test_a_file_of_unknown_size_has_a_home_too():
    found = homes()["a"]
    asked = [file(f"{k}", tag="")._replace(known=Entry(False, UNKNOWN)) for k in range(100)]
    assert any(found.source_of(each, 0) for each in asked)


def test_only_machines_that_serve_the_mount_are_asked():
    found = homes(urls=["fake://other"])["a"]
    assert {home_by("a", found, f"{k}") for k in range(100)} == {"a"}


@pytest.fixture
def source():
    found = homes()["a"]
    return next(
        filter(None, (found.source_of(file(f"{k}"), 0) for k in range(100)))
    )  # of one that is another's


@pytest.mark.parametrize("body", [b"", b"123456789", b"12345678901"])
def test_an_answer_of_another_length_is_none(source, body):
    with pytest.raises(Again):
        source.got(Answer(200, {}, body), "a", 0, 10, Entry(False, 10))


def test_an_error_is_what_it_is(source):
    assert isinstance(source, PeerSource)
    with pytest.raises(Denied, match="no such path"):
        source.got(Answer(403, {}, b"no such path"), "a", 0, 10, Entry(False, 10))


def test_an_answer_tells_the_size_that_was_not_known(source):
    answer = Answer(200, {b"entry": b'[false, 5, 7, "t"]'}, b"12345")
    assert source.got(answer, "a", 0, 100, Entry(False, UNKNOWN)) == Piece(
        Entry(False, 5, 7, "t"),
        b"12345",
    )
