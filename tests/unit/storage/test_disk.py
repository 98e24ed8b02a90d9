"""Blocks on disk: what the next run finds, damage, a full disk, and room that runs share."""

import os

import pytest

from stoker.kept_files import NAME, SLOT_NBYTES
from stoker.storage.reading.disk import Disk, digest_of
from stoker.storage.reading.stats import StorageStats


@pytest.fixture(autouse=True)
def closed():
    yield
    while _opened:
        _opened.pop().close()


_opened: list[Disk] = []


def opened(folder, nbytes=1 << 20, keeps=True, said=None):
    say = (said if said is not None else []).append
    _opened.append(Disk(folder, nbytes, keeps, StorageStats(), say))
    return _opened[-1]


def key(number, file=b"0123456789abcdef"):
    return file, number


def with_blocks(folder, blocks, **how):
    disk = opened(folder, **how)
    for each, data in blocks.items():
        disk.add(each, data)
    disk.flush()
    return disk


BLOCKS = {key(0): b"a" * 1000, key(1): b"b" * 500, key(0, b"another file 016"): b"c" * 100}


def test_the_next_run_finds_what_one_has_kept(tmp_path):
    with_blocks(tmp_path, BLOCKS)
    disk = opened(tmp_path)
    assert {each: disk.find(each) for each in BLOCKS} == BLOCKS
    assert disk.find(key(2)) is None


def test_nothing_is_left_of_what_is_not_to_be_kept(tmp_path):
    disk = with_blocks(tmp_path, BLOCKS, keeps=False)
    assert disk.find(key(0)) == BLOCKS[key(0)]
    assert list((tmp_path / NAME).iterdir()) == []


def test_a_flipped_bit_is_a_miss_and_the_block_can_be_kept_again(tmp_path):
    with_blocks(tmp_path, BLOCKS)
    (values,) = (tmp_path / NAME).glob("*.blocks")
    data = bytearray(values.read_bytes())
    data[10] ^= 1
    values.write_bytes(data)
    disk = opened(tmp_path)
    assert disk.find(key(0)) is None and disk.find(key(1)) == BLOCKS[key(1)]
    assert disk._stats.num_damaged == 1
    disk.add(key(0), BLOCKS[key(0)])
    disk.flush()
    assert disk.find(key(0)) == BLOCKS[key(0)]


@pytest.mark.parametrize("suffix", [".blocks", ".blockindex"])
def test_a_file_that_was_cut_short_is_a_miss(tmp_path, suffix):
    with_blocks(tmp_path, BLOCKS)
    (file,) = (tmp_path / NAME).glob(f"*{suffix}")
    os.truncate(file, 20)
    disk = opened(tmp_path)
    assert all(disk.find(each) in (None, data) for each, data in BLOCKS.items())


def test_no_more_is_written_than_the_folder_may_have(tmp_path):
    blocks = {key(k): bytes([k]) * 10_000 for k in range(20)}
    disk = with_blocks(tmp_path, blocks, nbytes=100_000)
    assert sum(each.stat().st_size for each in (tmp_path / NAME).iterdir()) <= 100_000
    assert sum(disk.find(each) is not None for each in blocks) == 100_000 // (10_000 + SLOT_NBYTES)


def test_two_runs_share_the_room_of_a_folder(tmp_path):
    first = with_blocks(tmp_path, {key(0): b"a" * 60_000}, nbytes=100_000)
    second = with_blocks(tmp_path, {key(1): b"b" * 60_000}, nbytes=100_000)
    assert first.find(key(0)) is not None and second.find(key(1)) is None


def test_a_run_that_finds_no_room_removes_what_it_has_not_read(tmp_path):
    with_blocks(tmp_path, {key(0): b"a" * 60_000}, nbytes=100_000)
    disk = with_blocks(tmp_path, {key(1): b"b" * 60_000}, nbytes=100_000)
    assert disk.find(key(1)) is None
    disk = opened(tmp_path, nbytes=100_000)
    disk._is_full = True
    disk.make_room()
    assert disk.find(key(0)) is None
    disk.add(key(1), b"b" * 60_000)
    disk.flush()
    assert disk.find(key(1)) is not None


def test_a_disk_that_fails_is_told_of_once_and_left_alone(tmp_path):
    said = []
    disk = opened(tmp_path, said=said)
    os.close(disk._values_fd)
    disk.add(key(0), b"a")
    disk.add(key(1), b"a")
    disk.flush()
    assert disk.find(key(0)) is None
    assert len(said) == 1 and str(tmp_path) in said[0]


def test_blocks_of_one_file_and_of_others_have_digests_of_their_own():
    keys = [key(k, file) for k in range(100) for file in (b"0" * 16, b"1" * 16)]
    assert len({digest_of(each) for each in keys}) == len(keys)
