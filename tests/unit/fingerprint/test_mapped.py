"""A mapped file is told from any other that may be mistaken for it, and is not read for that."""

import mmap
import os

import numpy as np
import pytest

from stoker.fingerprint.mapped import END_NBYTES, NotTheSame, file_of, look, mapping_of, opened

PAGE_NBYTES = mmap.PAGESIZE
NBYTES = 4 * END_NBYTES


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "tokens of a day.bin"
    made.write_bytes(np.random.default_rng(0).bytes(NBYTES))
    return made


def mapped(file, mode="r", **more):
    return np.memmap(file, np.uint16, mode, **more)


def test_an_array_a_slice_and_a_view_show_the_same_mapping(file):
    tokens = mapped(file)
    (shown,) = {mapping_of(a) for a in (tokens, tokens[5:][::-2], np.asarray(tokens)[3:])}
    assert isinstance(shown, mmap.mmap)
    assert mapping_of(tokens + 1) is None


def test_a_file_is_known_by_path_place_and_size(file):
    found = file_of(mapping_of(mapped(file)))
    assert found[:4] == (str(file), 0, NBYTES, NBYTES)
    part = file_of(mapping_of(mapped(file, offset=PAGE_NBYTES + 10, shape=(100,))))
    assert part[:4] == (str(file), PAGE_NBYTES, 210, NBYTES)
    assert part.ends != found.ends


def test_two_mappings_of_one_file_are_told_apart(file, tmp_path):
    other = tmp_path / "other"
    other.write_bytes(bytes(NBYTES))
    kept = [mapped(file), mapped(other), mapped(file)]
    assert [file_of(mapping_of(k)).path for k in kept] == [str(file), str(other), str(file)]


@pytest.mark.parametrize("mode", ["r+", "c"])
def test_what_may_be_written_has_no_file(file, mode):
    assert file_of(mapping_of(mapped(file, mode))) is None


def test_shared_memory_has_no_file():
    assert file_of(mmap.mmap(-1, PAGE_NBYTES, prot=mmap.PROT_READ)) is None


def test_a_closed_mapping_has_no_file(file):
    with file.open("rb") as opened_file:
        mapping = mmap.mmap(opened_file.fileno(), 0, access=mmap.ACCESS_READ)
    mapping.close()
    assert file_of(mapping) is None


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_file_that_is_gone_is_none(file, how):
    tokens, content = mapped(file), file.read_bytes()
    file.unlink()
    if how == "replaced":
        file.write_bytes(content)
    assert file_of(mapping_of(tokens)) is None


def test_what_is_opened_shows_the_same_bytes_and_cannot_be_written(file):
    tokens = mapped(file, offset=2 * PAGE_NBYTES)
    again = opened(file_of(mapping_of(tokens)))
    assert bytes(again) == tokens.tobytes()
    assert not np.frombuffer(again, np.uint8).flags.writeable


def grow(file):
    with file.open("ab") as more:
        more.write(b"x")


def write_at(place):
    def change(file):
        times = file.stat().st_atime_ns, file.stat().st_mtime_ns
        with file.open("r+b") as opened_file:
            opened_file.seek(place)
            opened_file.write(b"other")
        os.utime(file, ns=times)

    return change


CHANGES = {
    "grown": (grow, "it has 262,145 bytes, not 262,144"),
    "its first bytes": (write_at(0), "its content differs"),
    "its last bytes": (write_at(NBYTES - 5), "its content differs"),
    "its time": (lambda file: os.utime(file, ns=(0, 1)), "it was changed at another time"),
    "deleted": (lambda file: file.unlink(), "cannot be mapped there: No such file or directory"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_differs_is_not_opened(file, change):
    wanted = look(str(file), 0, NBYTES)
    change, why = CHANGES[change]
    change(file)
    with pytest.raises(NotTheSame, match=why):
        opened(wanted)
