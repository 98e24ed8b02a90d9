"""The shelf: what was written whole is found, by other processes too; anything else is a miss."""

import faulthandler
import multiprocessing
import os
import resource
import signal
from multiprocessing import resource_tracker

import pytest

from stoker.kept_files import SLOT_NBYTES, Entry, slot_of
from stoker.memory.desk import is_dropped
from stoker.memory.phases import EMPTY, packed
from stoker.memory.store import Key, Seat, ShelfAccess, Stores, encode, make_shelf
from stoker.memory.store.index import Index
from stoker.memory.store.rows import MAX_PLACES
from stoker.wire.arena import Arena
from tests.equality.remembering import values_open, with_small_index

KEY = b"k" * 16


@pytest.fixture
def shelf():
    return make_shelf(1 << 20)


def put(shelf, seat, key, value):
    return shelf.put(seat, key, encode(value), 5)


def bytes_of(shelf, key):
    entry = shelf.find(key)
    return None if entry is None else bytes(shelf.view(entry))


def in_a_child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_what_a_child_has_put_is_found_by_its_parent_and_its_sister(shelf):
    in_a_child(lambda: put(shelf, 0, KEY, "value"))
    assert bytes_of(shelf, KEY) == b"".join(encode("value"))
    in_a_child(lambda: put(shelf, 1, b"2" * 16, bytes_of(shelf, KEY)))
    assert bytes_of(shelf, b"2" * 16) == b"".join(encode(b"".join(encode("value"))))
    entry = shelf.find(KEY)
    assert shelf.is_whole(entry)
    assert entry.made_us == 5
    assert entry.pid != os.getpid()


def test_a_key_for_which_the_index_has_no_room_takes_none_of_the_shelf(shelf):
    """All the slots that it may have are others'."""
    for number in range(16):
        put(shelf, 0, bytes([0] * 8 + [number + 1] * 8), number)
    used = shelf.used_nbytes()
    assert not put(shelf, 0, bytes([0] * 8 + [99] * 8), "one more")
    assert shelf.used_nbytes() == used
    assert put(shelf, 0, bytes([0] * 8 + [3] * 8), "again")  # its own slot


def test_states_that_are_dropped_are_known_to_all(shelf):
    states = [bytes([number] * 16) for number in range(1, 120)]
    before = shelf.dropped
    for state in states:
        in_a_child(lambda state=state: shelf.drop(state))
    assert shelf.dropped != before
    assert all(is_dropped(state, shelf.dropped) for state in states)
    assert not is_dropped(b"2" * 8 + b"3" * 8, shelf.dropped)
    for number in range(250):
        shelf.drop(bytes([7, number] * 8))  # more than there is room for
    assert is_dropped(bytes([7, 249] * 8), shelf.dropped)


def test_a_writer_that_is_killed_leaves_nothing_half(shelf, monkeypatch):
    def work():
        monkeypatch.setattr(
            type(shelf._index), "add", lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        )
        put(shelf, 0, KEY, "lost")

    assert in_a_child(work) == -signal.SIGKILL
    assert shelf.find(KEY) is None
    in_a_child(lambda: put(shelf, 0, KEY, "again"))
    assert bytes_of(shelf, KEY) == b"".join(encode("again"))


def test_a_flipped_bit_is_told(shelf):
    put(shelf, 0, KEY, "x" * 1000)
    entry = shelf.find(KEY)
    for at in (0, 7, 500, entry.nbytes - 1):
        for bit in range(8):
            with values_open(shelf):
                shelf.view(entry)[at] ^= 1 << bit
            assert not shelf.is_whole(entry)
            with values_open(shelf):
                shelf.view(entry)[at] ^= 1 << bit
    assert shelf.is_whole(entry)


def test_the_budget_is_kept(shelf):
    num = 0
    while shelf.has_room(num % 4, 5000):
        assert put(shelf, num % 4, num.to_bytes(16, "little"), b"x" * 4800)
        num += 1
    assert 180 < num <= 220
    assert shelf.used_nbytes() <= shelf.budget_nbytes


def test_the_budget_is_kept_by_workers_that_want_the_last_of_it_at_once():
    # Each was told that there is room before any of them took it.
    shelf = make_shelf(2 * 4928)
    parts = [memoryview(bytes(4900))]
    asked = [shelf.has_room(seat, 4900) for seat in range(3)]
    kept = [shelf.put(seat, bytes([seat + 1]) * 16, parts, 5) for seat in range(3)]
    assert asked == [True, True, True]
    assert kept == [True, True, False]
    assert shelf.used_nbytes() <= shelf.budget_nbytes
    assert shelf.find(bytes([3]) * 16) is None
    assert not shelf.has_room(2, 1)


def test_workers_that_race_for_the_last_of_it_stay_within_the_budget():
    for _ in range(20):
        shelf = make_shelf(5 * 64)
        begin, say_begin = os.pipe()
        pids = []
        for seat in range(4):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    os.close(say_begin)
                    os.read(begin, 1)
                    for number in range(100):
                        if shelf.has_room(seat, 60):
                            key = bytes([seat + 1, number + 1] * 8)
                            shelf.put(seat, key, [memoryview(bytes(60))], 5)
                    status = 0
                finally:
                    os._exit(status)
            pids.append(pid)
        os.close(begin)
        os.close(say_begin)  # all read the end of the file
        assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 4
        assert 0 < shelf.used_nbytes() <= shelf.budget_nbytes


def test_seats_are_taken_once(shelf):
    first, second = shelf.take_seats(3), shelf.take_seats(2)
    assert not set(first) & set(second)
    shelf.give_back(first, 3)
    assert shelf.take_seats(3) == first
    assert len(shelf.take_seats(1000)) == 64 - 5


def test_rows_of_a_place_are_added_up(shelf):
    for number in (0, 1):
        row = Seat(shelf, number).row_of(KEY, "place.py:3 Photos")
        row.write(EMPTY._replace(num_hits=5 + number, first_draw=packed((7 - number,))))
    assert Seat(shelf, 0).row_of(KEY, "again").read().num_hits == 5
    name, why, counts = shelf.places()[KEY]
    assert (name, why, counts.num_hits) == ("place.py:3 Photos", "", 11)
    assert counts.first_draw == packed((6,))
    Seat(shelf, 1).row_of(KEY, "").say_why("prints")
    assert shelf.counts_of(KEY)[1] == "prints"


def test_a_seat_has_rows_for_so_many_places(shelf):
    seat = Seat(shelf, 0)
    for number in range(MAX_PLACES):
        assert seat.row_of(number.to_bytes(16, "big").replace(b"\0", b"x"), "name") is not None
    assert seat.row_of(b"one more than it", "name") is None
    assert Seat(shelf, None).row_of(KEY, "name") is None


# -- the index ---------------------------------------------------------------------------------------

ENTRY = Entry(64, 100, 7, 1234, 99)


@pytest.fixture
def memory():
    return memoryview(bytearray(64 * SLOT_NBYTES))


def test_an_index_finds_what_was_added(memory):
    index = Index(memory, 64)
    assert index.find(KEY) is None
    assert index.add(KEY, ENTRY)
    assert Index(memory, 64).find(KEY) == ENTRY
    assert index.add(KEY, ENTRY._replace(offset=128))
    assert index.find(KEY).offset == 128


def test_a_torn_slot_is_a_miss_and_is_used_again(memory):
    index = Index(memory, 64)
    index.add(KEY, ENTRY)
    at = bytes(memory).find(KEY)
    for byte in range(SLOT_NBYTES):
        memory[at + byte] ^= 1
        assert index.find(KEY) is None
        memory[at + byte] ^= 1
    memory[at + 20] ^= 1
    index.add(KEY, ENTRY)
    assert index.find(KEY) == ENTRY


def test_a_full_neighbourhood_takes_no_more(memory):
    index = Index(memory, 64)
    added = [index.add(bytes(8) + number.to_bytes(8, "little"), ENTRY) for number in range(20)]
    assert added == [True] * 16 + [False] * 4


def test_what_is_written_to_a_view_of_ones_own_nobody_else_sees():
    shelf = make_shelf(1 << 22)
    parts = [memoryview(bytes([k]) * 5000) for k in range(3)]
    for k in range(3):
        assert shelf.put(0, bytes([k]) * 16, parts, 1)
    entry = shelf.find(bytes([1]) * 16)
    own = shelf.own_view(entry)
    assert own == shelf.view(entry)
    own[4000:9000] = bytes(5000)
    assert shelf.is_whole(entry) and own != shelf.view(entry)
    assert shelf.own_view(entry) == shelf.view(entry)


def stray(shelf):
    """Write to a value, as by a pointer that has gone wrong."""
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    shelf.view(shelf.find(KEY))[3] = 7


def test_who_writes_to_a_value_by_mistake_dies_and_the_value_stays(shelf):
    """As it were where there is no memory: what is kept cannot be changed unseen."""
    put(shelf, 0, KEY, "value")
    before = bytes_of(shelf, KEY)
    assert in_a_child(lambda: stray(shelf)) == -signal.SIGSEGV
    assert bytes_of(shelf, KEY) == before
    for number in range(2):  # the pages of the first value, too
        put(shelf, 0, bytes([number]) * 16, "more")
        assert in_a_child(lambda: stray(shelf)) == -signal.SIGSEGV


@pytest.fixture(scope="module")
def tracker():
    """The process that multiprocessing starts once and keeps."""
    resource_tracker.ensure_running()
    yield
    resource_tracker._resource_tracker._stop()


@pytest.mark.usefixtures("tracker")
def test_so_does_a_process_that_is_spawned(shelf):
    put(shelf, 0, KEY, "value")
    process = multiprocessing.get_context("spawn").Process(target=stray, args=(shelf,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGSEGV


OTHER = b"o" * 16


def test_where_a_tail_is_damaged_or_anothers_no_value_is_written_over(shelf):
    put(shelf, 0, KEY, "value")
    before, tail = bytes_of(shelf, KEY), shelf._tails[0]
    shelf._tails[0] = 0
    assert not shelf.has_room(0, 100)
    assert not put(shelf, 0, OTHER, "over it")
    shelf._tails[0] = tail
    Seat(shelf, 0)
    in_a_child(lambda: put(shelf, 0, OTHER, "of a worker that was thought to have ended"))
    assert shelf.find(OTHER) is None
    assert shelf._tails[0] == tail
    assert put(shelf, 0, OTHER, "behind it")
    assert bytes_of(shelf, KEY) == before


def cheap_then_dear(shelf, less_nbytes=0):
    """Fill a shelf with cheap values; then there is no room for those that cost much. less_nbytes: that
    each has less than a megabyte."""
    rows = [Seat(shelf, 0).row_of(bytes([k]) * 16, "") for k in (1, 2)]
    few = EMPTY._replace(num_timed=8, num_learnt=16, num_samples=10, num_made=10)
    made = few._replace(made_us=10_000_000, made_nbytes=10 << 20)
    rows[0].write(made._replace(num_stored=3, stored_nbytes=3 << 20))
    rows[1].write(made._replace(made_us=90_000_000))
    for number in range(3):
        value = memoryview(bytes([1]) * ((1 << 20) - less_nbytes))
        shelf.put(0, bytes([9, number] * 8), [value], 1_000_000)


def test_what_makes_room_gives_its_pages_back(monkeypatch):
    with_small_index(monkeypatch)  # all of it is read
    shelf = make_shelf(7 << 19)
    cheap_then_dear(shelf)
    used, blocks = shelf.used_nbytes(), os.fstat(shelf._arena.fd).st_blocks
    shelf.make_room()
    assert shelf.used_nbytes() == used - (3 << 20)
    assert os.fstat(shelf._arena.fd).st_blocks < blocks // 2


def test_what_was_taken_for_a_value_of_any_size_is_given_back_whole(monkeypatch):
    with_small_index(monkeypatch)
    shelf = make_shelf(7 << 19)
    cheap_then_dear(shelf, less_nbytes=33)  # the last 64 bytes are not full
    assert shelf.used_nbytes() == 3 << 20
    shelf.make_room()
    assert shelf.used_nbytes() == 0


def test_nothing_makes_room_while_a_worker_reads_who_got_no_seat():
    shelf = make_shelf(7 << 19)
    seats = shelf.take_seats(64)
    assert shelf.take_seats(2) == []
    shelf.give_back(seats, 64)
    cheap_then_dear(shelf)
    used = shelf.used_nbytes()
    shelf.make_room()
    assert shelf.used_nbytes() == used
    shelf.give_back([], 2)
    shelf.make_room()
    assert shelf.used_nbytes() < used


def test_room_that_the_system_keeps_is_not_counted_as_free(monkeypatch):
    shelf = make_shelf(7 << 19)
    cheap_then_dear(shelf)
    used = shelf.used_nbytes()
    monkeypatch.setattr(Arena, "_set_access", lambda *_: False)
    shelf.make_room()
    assert shelf.used_nbytes() == used
    assert not shelf.is_protected


def test_where_the_system_protects_no_memory_values_are_checked(monkeypatch):
    monkeypatch.setattr(Arena, "protect", lambda *_: False)
    shelf = make_shelf(1 << 22)
    monkeypatch.setattr(Arena, "writable", None)
    assert put(shelf, 0, KEY, bytes(2 << 20))
    stores = Stores(ShelfAccess(shelf, 0, b"", audit=False))
    kept = stores.find(Key(KEY, b""))
    assert stores.own_memory_of(kept) is not None
    shelf.view(kept.entry)[1 << 20] ^= 1
    assert stores.own_memory_of(kept) is stores.memory_of(kept) is None


def test_what_cannot_be_written_is_not_kept(shelf, monkeypatch):
    monkeypatch.setattr(Arena, "_set_access", lambda *_: False)
    assert not put(shelf, 0, KEY, "value")
    assert shelf.find(KEY) is None


def test_a_view_of_ones_own_is_refused_where_another_file_has_got_the_number(tmp_path):
    shelf = make_shelf(1 << 22)
    assert shelf.put(0, bytes(16), [memoryview(bytes(5000))], 1)
    entry = shelf.find(bytes(16))
    fd = shelf._arena.fd
    os.close(fd)
    assert shelf.own_view(entry) is None
    (tmp_path / "x").write_bytes(bytes(1 << 20))
    assert os.open(tmp_path / "x", os.O_RDWR) == fd
    assert shelf.own_view(entry) is None
    del shelf
    os.close(fd)  # that is not ours to close


def test_an_index_takes_over_another_up_to_the_first_damage():
    there = Index(memoryview(bytearray(64 * SLOT_NBYTES)), 64)
    keys = [bytes([k]) * 16 for k in range(1, 5)]
    slots = bytearray(b"".join(slot_of(key, ENTRY) for key in keys))
    there.load(bytes(slots) + b"a part of a slot", 99)
    assert len(there.entries()) == 4
    there = Index(memoryview(bytearray(64 * SLOT_NBYTES)), 64)
    slots[2 * SLOT_NBYTES + 20] ^= 1
    there.load(bytes(slots), 99)
    found = [there.find(key) for key in keys]
    assert found == [ENTRY._replace(pid=99)] * 2 + [None] * 2
    again = ENTRY._replace(offset=640)
    there.load(slot_of(keys[0], again), 7)
    assert there.find(keys[0]) == again._replace(pid=7)
    assert len(there.entries()) == 2
