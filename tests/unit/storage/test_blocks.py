"""Reading by blocks: the right bytes, one request for each, merged ranges, read-ahead, errors."""

import os
import threading

import pytest

from stoker.clock import Deadline
from stoker.storage.origins import Again, Changed, Denied, Entry
from stoker.storage.reading.blocks import Blocks
from stoker.storage.reading.disk import Disk
from stoker.storage.reading.file import BLOCK_NBYTES, MERGED_BLOCKS, file_of
from stoker.storage.reading.memory import Memory
from stoker.storage.reading.stats import StorageStats
from tests.unit.storage.fake_origin import FakeOrigin

BIG = os.urandom(5 << 20)
SMALL = os.urandom(40_000)


@pytest.fixture
def made():
    opened = []

    def make(budget_nbytes=64 << 20, disk=None, limit_s=5.0, **how):
        stats = StorageStats()
        blocks = Blocks(Memory(budget_nbytes, stats), disk, stats, limit_s, **how)
        opened.append(blocks)
        return blocks

    yield make
    for blocks in opened:
        blocks.close()
        blocks._pool.shutdown()


def file(data=SMALL, path="a.jpg", **how):
    origin = FakeOrigin({path: data}, **how)
    return origin, file_of(origin, path, origin.list("")[path])


def reads(origin):
    return [each for each in origin.asked if each[0] == "read"]


@pytest.mark.parametrize("start", [0, 1, BLOCK_NBYTES - 1, BLOCK_NBYTES, 3 * BLOCK_NBYTES + 7])
@pytest.mark.parametrize("nbytes", [1, 4096, BLOCK_NBYTES, 2 * BLOCK_NBYTES + 5, 10 << 20])
def test_any_range_of_a_large_file_is_the_files_own_bytes(made, start, nbytes):
    _, big = file(BIG)
    assert made().read(big, start, nbytes) == BIG[start : start + nbytes]


@pytest.mark.parametrize("nbytes", [0, 1, 40_000, 1 << 20, (1 << 20) + 1])
def test_files_of_every_size_are_read_whole(made, nbytes):
    data = BIG[:nbytes]
    origin, found = file(data)
    assert made().read(found, 0, 1 << 24) == data
    assert len(reads(origin)) == bool(data)


def test_many_readers_of_one_file_cost_one_request(made):
    origin, small = file()
    origin.gate.clear()
    blocks, got = made(), []
    threads = [
        threading.Thread(target=lambda: got.append(blocks.read(small, 0, 1 << 20)))
        for _ in range(64)
    ]
    for thread in threads:
        thread.start()
    origin.gate.set()
    for thread in threads:
        thread.join()
    assert got == [SMALL] * 64
    assert len(reads(origin)) == 1


def test_ranges_that_follow_each_other_are_asked_for_in_one_request(made):
    origin, big = file(BIG)
    made().read(big, 0, 4 * BLOCK_NBYTES)
    assert ("read", "a.jpg", 0, 4 * BLOCK_NBYTES) in reads(origin)
    assert all(end - start <= MERGED_BLOCKS * BLOCK_NBYTES for _, _, start, end in reads(origin))


def test_a_page_out_of_a_mapping_costs_a_block_and_not_the_file(made):
    origin, big = file(BIG)
    blocks = made()
    blocks.read(big, 3 << 20, 4096)
    blocks.read(big, 1 << 20, 4096)
    assert [end - start for _, _, start, end in reads(origin)] == [BLOCK_NBYTES] * 2


def test_a_reader_that_goes_on_finds_the_next_blocks_fetched(made):
    origin, big = file(BIG)
    blocks = made()
    for start in range(0, len(BIG), 128 << 10):
        assert blocks.read(big, start, 128 << 10) == BIG[start : start + (128 << 10)]
    ranges = sorted(each[2:] for each in reads(origin))
    assert sum(end - start for start, end in ranges) == len(BIG)  # none twice
    assert blocks.stats.ahead_nbytes > len(BIG) / 2


ROWS = os.urandom(64 << 20)


def read_blocks(blocks, each, numbers):
    for number in numbers:
        start = number * BLOCK_NBYTES
        assert blocks.read(each, start, 1000) == ROWS[start : start + 1000]


def wait_until_all_has_come(blocks):
    while blocks._coming:
        threading.Event().wait(0.01)


def test_readers_that_take_turns_with_others_have_what_lies_ahead(made):
    """As workers, here and elsewhere, that read every other row of one file."""
    _, each = file(ROWS)
    blocks = made(128 << 20)
    read_blocks(blocks, each, range(8))
    read_blocks(blocks, each, range(8, 256, 2))
    assert blocks.stats.remote_nbytes - blocks.stats.ahead_nbytes == BLOCK_NBYTES  # the first one


def test_single_blocks_that_are_here_start_no_reading_ahead(made):
    """As rows that look-ahead has brought, and that are read in any order."""
    _, each = file(ROWS)
    blocks = made(128 << 20)
    numbers = [200, 3, 90, 30, 100, 7, 120]
    for number in numbers:
        blocks.fetch_ahead(each, number, number)
    read_blocks(blocks, each, numbers)
    wait_until_all_has_come(blocks)
    assert blocks.stats.remote_nbytes == len(numbers) * BLOCK_NBYTES


def test_of_what_lies_ahead_of_turns_each_machine_fetches_what_has_its_home_there(made):
    class Here:
        """Another machine has every second 4 MiB."""

        def source_of(self, file, first):
            return other if first // MERGED_BLOCKS % 2 else None

        def has_failed(self, source):
            raise AssertionError("it answers")

    origin, each = file(ROWS)
    other = FakeOrigin({})  # no plain GETs: this test has the origin asked for its blocks, too
    blocks = made(128 << 20, homes=Here())
    read_blocks(blocks, each, range(8))
    read_blocks(blocks, each, range(8, 64, 8))  # to 16 MiB
    wait_until_all_has_come(blocks)
    # The first eight were read in a row, with 32 MiB ahead.
    ahead = [start for _, _, start, _ in reads(origin) if start >= 34 << 20]
    assert ahead
    assert not [start for start in ahead if start // BLOCK_NBYTES // MERGED_BLOCKS % 2]


def test_a_file_that_was_fetched_ahead_is_asked_for_no_more(made):
    origin, small = file()
    blocks = made()
    blocks.fetch_ahead(small, 0, 0)
    blocks.fetch_ahead(small, 0, 0)
    assert blocks.read(small, 0, 1 << 20) == SMALL
    assert len(reads(origin)) == 1 and blocks.stats.ahead_nbytes == len(SMALL)
    assert blocks.stats.memory_nbytes == 0  # that was no hit
    blocks.read(small, 0, 1 << 20)
    assert blocks.stats.memory_nbytes == len(SMALL)


def test_there_is_room_ahead_again_once_what_waits_was_read(made):
    blocks = made(
        budget_nbytes=256_000
    )  # a sixteenth for what waits, the rest for three that are kept
    files = [file(os.urandom(80_000))[1] for _ in range(4)]
    for each in files:
        blocks.fetch_ahead(each, 0, 0)
    waits = [blocks.wait_room_ahead(Deadline(0.0)) for _ in range(1)]
    for each in files:
        assert len(blocks.read(each, 0, 80_000)) == 80_000
    assert blocks.wait_room_ahead(Deadline(5.0))
    assert waits == [False]


def test_what_fails_for_a_while_is_tried_again(made):
    origin, small = file()
    origin.fails = [Again("503"), Again("cut short")]
    blocks = made()
    assert blocks.read(small, 0, 1 << 20) == SMALL
    assert blocks.stats.num_retries == 2


@pytest.mark.parametrize("error", [Denied("403"), Changed("its tag is another"), Again("503")])
def test_what_cannot_be_had_is_an_error_and_told_with_its_url(made, error):
    origin, small = file()
    origin.fails = [error] * 1000
    told = []
    blocks = made(limit_s=0.3, on_error=lambda url, why: told.append((url, why)))
    with pytest.raises(type(error)):
        blocks.read(small, 0, 100)
    assert told == [("fake://bucket/a.jpg", error)]


def test_a_read_after_one_that_failed_asks_again(made):
    origin, small = file()
    origin.fails = [Denied("403")]
    blocks = made()
    with pytest.raises(Denied):
        blocks.read(small, 0, 100)
    assert blocks.read(small, 0, 100) == SMALL[:100]


def test_an_object_that_was_replaced_is_an_error_and_never_other_bytes(made):
    origin, small = file()
    origin.files["a.jpg"] = os.urandom(40_000)
    with pytest.raises(Changed):
        made().read(small, 0, 100)


def test_a_file_whose_size_is_not_known_is_found_out_with_its_bytes(made):
    origin, unknown = file(has_sizes=False)
    found = []
    blocks = made(on_found=found.append)
    known = blocks.find_out(unknown, lambda: None)
    assert found == [known] and known.nbytes == len(SMALL)
    assert blocks.read(known, 0, 1 << 20) == SMALL
    assert len(reads(origin)) == 1


def test_what_memory_has_no_room_for_is_found_on_disk(made, tmp_path):
    disk = Disk(tmp_path, 1 << 24, False, StorageStats(), print)
    blocks = made(budget_nbytes=1000, disk=disk)
    origin, small = file()
    blocks.read(small, 0, 1 << 20)
    disk.flush()
    assert blocks.read(small, 0, 1 << 20) == SMALL
    assert len(reads(origin)) == 1 and blocks.stats.disk_nbytes == len(SMALL)
    disk.close()


def test_the_same_bytes_under_another_tag_are_another_file():
    origin = FakeOrigin({})
    one, two = (file_of(origin, "a", Entry(False, 1, 0, tag)) for tag in ("x", "y"))
    assert one.digest != two.digest


def test_who_reads_once_the_run_ends_is_told_so_and_does_not_wait(made):
    origin, found = file()
    origin.gate.clear()
    blocks = made()
    failed = []

    def read():
        with pytest.raises(Again, match="the run ends") as raised:
            blocks.read(found, 0, 10)
        failed.append(raised.value)

    thread = threading.Thread(target=read)
    thread.start()
    while not reads(origin):
        threading.Event().wait(0.01)
    blocks.close()
    thread.join()
    origin.gate.set()
    _, other = file(path="b.jpg")
    with pytest.raises(Again, match="the run ends"):
        blocks.read(other, 0, 10)
    assert len(failed) == 1
