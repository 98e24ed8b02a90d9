"""Who is asked next: what somebody waits for, of the origin or of another machine, each within its limit."""

import pytest

from stoker.storage.origins import Answer, Entry, Get, Piece
from stoker.storage.origins.between import checked
from stoker.storage.reading import blocks as reading
from stoker.storage.reading.blocks import Blocks
from stoker.storage.reading.file import file_of
from stoker.storage.reading.memory import Memory
from stoker.storage.reading.stats import StorageStats
from tests.unit.storage.fake_origin import FakeOrigin

GET = Get(("http", "nowhere", 1), b"", 10)


class Source:
    """Another machine."""

    def get(self, *_):
        return GET

    def got(self, answer, path, start, end, known, hint=None):
        return Piece(known, checked(answer).body)


class WebOrigin(FakeOrigin):
    get, got = Source.get, Source.got


class Homes:
    """All files whose names begin with `away` have their home at another machine, while it is there."""

    def __init__(self):
        self.other, self.is_there, self.failed = Source(), True, []

    def source_of(self, file, first):
        return self.other if self.is_there and file.path.startswith("away") else None

    def has_failed(self, source):
        self.failed.append(source)


class NoGetter:
    """Asks nobody."""

    def __init__(self, take):
        pass

    def wake(self):
        pass

    def close(self):
        pass


@pytest.fixture
def homes():
    return Homes()


@pytest.fixture
def made(monkeypatch, homes):
    monkeypatch.setattr(reading, "Getter", NoGetter)
    stats, origin = StorageStats(), WebOrigin({})
    blocks = Blocks(Memory(1 << 20, stats), None, stats, num_at_once=2, homes=homes)

    class Made:
        requests = ()

        def file(self, path):
            return file_of(origin, path, Entry(False, 3, 1, "tag"))

        def ahead(self, *paths):
            for path in paths:
                blocks.fetch_ahead(self.file(path), 0, 0)

        def want(self, path, by_peer=False):
            blocks._want(self.file(path), 0, 0, origin if by_peer else None)

        def sent(self):
            """Return the paths that are asked for now, and where."""
            requests = list(iter(blocks._next, None))
            self.requests = *self.requests, *requests
            fetches = [request.done.args[0] for request in requests]
            return [(each.file.path, "origin" if each.is_at_origin else "peer") for each in fetches]

        def answer(self, path, answer=Answer(200, {}, b"abc")):  # noqa: B008
            (request,) = [each for each in self.requests if each.done.args[0].file.path == path]
            self.requests = tuple(each for each in self.requests if each is not request)
            request.done(answer)

        def has(self, path):
            return blocks.memory.has((self.file(path).digest, 0))

    yield Made()
    blocks.close()
    blocks._pool.shutdown()


def test_origin_and_other_machines_have_a_limit_each(made):
    made.ahead("away 1", "away 2", "away 3", "own 1", "own 2", "own 3")
    assert sorted(made.sent()) == [
        ("away 1", "peer"), ("away 2", "peer"), ("own 1", "origin"), ("own 2", "origin"),
    ]  # fmt: skip
    made.answer("away 2")
    assert made.sent() == [("away 3", "peer")]
    made.answer("own 2")
    assert made.sent() == [("own 3", "origin")]
    assert made.has("away 2") and made.has("own 2") and not made.has("own 3")


def test_what_a_peer_waits_for_is_asked_of_the_origin_whoever_is_waited_for_here(made):
    made.ahead("away 1", "away 2", "away 3")
    assert len(made.sent()) == 2
    made.want("away 4")
    made.want("own 1", by_peer=True)
    made.want("away 5", by_peer=True)  # it thinks that its home is here
    assert made.sent() == [("own 1", "origin"), ("away 5", "origin")]


def test_who_is_waited_for_goes_first_with_other_machines_too(made):
    made.ahead("away 1", "away 2", "away 3")
    made.want("away 3")
    assert made.sent() == [("away 3", "peer"), ("away 1", "peer")]


def test_where_a_home_goes_its_blocks_are_asked_of_the_origin_in_the_same_order(made, homes):
    made.ahead("away 1", "away 2", "away 3")
    made.want("away 4")
    homes.is_there = False
    assert made.sent() == [("away 4", "origin"), ("away 1", "origin")]
    made.want("away 5")  # goes before those ahead, which have come from another queue
    made.answer("away 1")
    made.answer("away 4")
    assert made.sent() == [("away 5", "origin"), ("away 2", "origin")]
    assert not homes.failed


def test_where_a_home_comes_it_is_asked_for_its_blocks(made, homes):
    homes.is_there = False
    made.ahead("own 1", "away 1", "own 2")
    homes.is_there = True
    assert made.sent() == [("own 1", "origin"), ("own 2", "origin"), ("away 1", "peer")]


def test_what_another_machine_does_not_send_is_asked_of_the_origin_next(made, homes):
    made.ahead("away 1", "away 2", "own 1", "own 2", "own 3")
    made.sent()
    made.answer("away 1", None)
    assert homes.failed == [homes.other]
    made.answer("own 1")
    assert made.sent() == [("away 1", "origin")]
    made.answer("away 2", Answer(403, {}, b"not here"))  # it lives
    assert homes.failed == [homes.other]
    made.answer("away 1")
    assert made.sent() == [("away 2", "origin")]
    assert made.has("away 1")
