"""Blocks in memory: the budget, what stays, what goes, and damage."""

from stoker.storage.reading import memory as module
from stoker.storage.reading.memory import Memory
from stoker.storage.reading.stats import StorageStats


def key(number, file=b"f" * 16):
    return file, number


def filled(budget_nbytes, num, nbytes=100):
    memory = Memory(budget_nbytes, StorageStats())
    kept = [memory.add(key(k), bytes([k]) * nbytes) for k in range(num)]
    return memory, kept


def test_blocks_are_kept_until_the_budget_is_full_and_never_dropped_for_others():
    memory, kept = filled(1000, 12)
    assert kept == [True] * 9 + [False] * 3  # a sixteenth is for those that wait for a reader
    assert all(memory.find(key(k)) == bytes([k]) * 100 for k in range(9))


def test_it_never_holds_more_than_its_budget():
    memory, _ = filled(1000, 50)
    held = sum(memory.find(key(k)) is not None for k in range(50))
    assert held * 100 <= 1000


def test_a_block_that_waited_for_its_reader_goes_when_it_was_read():
    memory, _ = filled(1000, 10)
    assert memory.find(key(9)) is not None
    assert memory.was_read(key(9))
    assert memory.find(key(9)) is None
    assert not memory.was_read(key(0)) and memory.find(key(0)) is not None


def test_what_nobody_reads_makes_room_after_a_while(monkeypatch):
    memory, _ = filled(1000, 10)
    before = memory.room_ahead_nbytes()
    memory.drop_stale()
    assert memory.room_ahead_nbytes() == before == 1000 - 900 - 62
    monkeypatch.setattr(module, "STALE_S", -1.0)
    memory.drop_stale()
    assert memory.room_ahead_nbytes() == 100  # the sixteenth, and what is left beside the kept ones


def test_a_flipped_bit_is_found_and_the_block_is_gone():
    stats = StorageStats()
    memory = Memory(1000, stats)
    memory.add(key(0), b"a" * 100)
    data, check = memory._kept[key(0)]
    memory._kept[key(0)] = b"b" + data[1:], check
    assert memory.find(key(0)) is None
    assert stats.num_damaged == 1
    assert memory.add(key(0), b"a" * 100) and memory.find(key(0)) == b"a" * 100
