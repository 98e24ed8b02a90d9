"""Which bytes of large files samples will read: what they have read before, and rows that lie on a line."""

import itertools
import random

import pytest

from stoker.storage.learning.learnt import MAX_LINES, Learnt, Wanted
from stoker.storage.learning.line import NUM_POINTS, Line, Part
from stoker.storage.learning.reads import JOINED_NBYTES, MAX_READERS, MAX_READS, Made, Read, Reads

KIB = 1024
ROW = 3 << 20


NOISE = random.Random(1)


def seen(index, row=ROW, head=128):
    """What the kernel asks for: whole pages, up to 64 KiB before a row."""
    start = max(0, head + index * row - NOISE.randrange(64 * KIB)) // 4096 * 4096
    return Part(start, head + (index + 1) * row)


@pytest.mark.parametrize("order", ["in order", "shuffled"])
@pytest.mark.parametrize("row", [2 * KIB, 300 * KIB, ROW])
def test_rows_that_were_not_read_yet_are_found_by_the_others(order, row):
    indices = list(range(2000))
    if order == "shuffled":
        random.Random(0).shuffle(indices)
    line = Line(1 << 40)
    for index in indices[:500]:
        line.note(index, seen(index, row))
    if (
        order == "in order" and row == 2 * KIB
    ):  # 64 of them lie in one block: reading ahead sees that
        assert line.part_of(500) is None
        return
    for index in indices[500:600]:
        part, truth = line.part_of(index), 128 + index * row
        assert part.start - 200 * KIB <= truth and truth + row <= part.end + 200 * KIB
        assert part.end - part.start < row + 300 * KIB


def test_few_samples_tell_and_fewer_do_not():
    line = Line(1 << 40)
    for index in (5, 900, 17):
        line.note(index, seen(index))
        assert line.part_of(6) is None
    line.note(400, seen(400))
    assert abs(line.part_of(6).start - 6 * ROW) < 128 * KIB


def test_a_header_and_other_reads_that_are_off_move_no_line():
    line, numbers = Line(1 << 40), random.Random(2)
    for k in range(100):
        index = numbers.randrange(5000)
        line.note(index, Part(0, 4096) if k % 6 == 0 else seen(index))
    assert abs(line.part_of(1234).start - 1234 * ROW) < 128 * KIB


def test_samples_of_all_sizes_lie_on_no_line_and_nothing_is_guessed():
    line, numbers = Line(1 << 40), random.Random(3)
    starts = list(itertools.accumulate(numbers.randrange(1, 40) << 20 for _ in range(1000)))
    order = numbers.sample(range(999), 200)
    for index in order:
        line.note(index, Part(starts[index], starts[index + 1]))
    assert line.part_of(500) is None


def test_a_line_that_ends_is_given_up():
    line = Line(1 << 40)
    for index in range(NUM_POINTS):
        line.note(index, seen(index))
    assert line.part_of(7) is not None
    for index in range(NUM_POINTS, 3 * NUM_POINTS):
        line.note(index, Part(hash((index, 1)) % (1 << 33), 1 << 34))
    assert line.part_of(7) is None


def test_one_sample_again_and_again_is_no_line():
    line = Line(1 << 40)
    for _ in range(20):
        line.note(3, seen(3))
    assert line.part_of(4) is None


# -- whose reads ---------------------------------------------------------------------------------


def test_a_read_is_that_of_the_sample_that_its_process_was_making():
    reads = Reads()
    for at_s, reader, start in [(0.5, 7, 0), (1.0, 7, 10), (1.2, 8, 20), (2.0, 7, 30), (2.1, 7, 40), (4.5, 7, 50)]:  # fmt: skip
        reads.note(reader, "/d/a", start << 20, (start << 20) + 4096, 1 << 30, at_s)
    at = lambda k: Part(k << 20, (k << 20) + 4096)  # noqa: E731
    samples = [Made("x", 0.9, 1.5), Made("none", 1.5, 1.9), Made("y", 1.9, 3.0)]
    assert reads.take(7, samples) == [
        ("x", {"/d/a": Read(1 << 30, [at(10)])}),
        ("y", {"/d/a": Read(1 << 30, [at(30), at(40)])}),
    ]  # fmt: skip
    # What came after them is the next batch's.
    assert reads.take(7, [Made("z", 4.0, 5.0)]) == [("z", {"/d/a": Read(1 << 30, [at(50)])})]
    assert reads.take(7, samples) == [] and reads.take(99, samples) == []
    assert reads.take(8, samples) == [("x", {"/d/a": Read(1 << 30, [at(20)])})]


def test_pieces_that_follow_each_other_are_one_part():
    reads = Reads()
    for start in (300, 100, 0, 200, 9000):
        reads.note(1, "/d/a", start * KIB, (start + 100) * KIB, 1 << 30, 1.0)
    ((_, found),) = reads.take(1, [Made(0, 0.0, 2.0)])
    parts = [Part(0, 400 * KIB), Part(9000 * KIB, 9100 * KIB)]
    assert found == {"/d/a": Read(1 << 30, parts)}
    assert JOINED_NBYTES < 8000 * KIB


def test_who_never_tells_costs_a_limited_memory():
    reads = Reads()
    for reader in range(2 * MAX_READERS):
        for k in range(MAX_READS + 1):
            reads.note(reader, "/d/a", k, k + 1, 9, float(k))
    assert len(reads._of) == MAX_READERS
    assert {len(noted) for noted in reads._of.values()} == {MAX_READS}


# -- what is wanted ------------------------------------------------------------------------------

FILE = 100 * ROW


def read_of(index, path="/d/a", of=FILE, shift=0):
    return index, {path: Read(of, [seen(index - shift)])}


def test_what_a_sample_has_read_is_wanted_again_and_no_whole_file():
    learnt = Learnt()
    read = {"/d/a": Read(FILE, [Part(5, 9), Part(500, 900)]), "/d/b": Read(FILE, [Part(0, 7)])}
    learnt.learn_opened("set", [(3, "/d/a"), (3, "/d/small")])
    learnt.learn_read("set", [(3, read)])
    assert learnt.wanted("set", [3]) == [
        Wanted("/d/small"), Wanted("/d/a", Part(5, 9)), Wanted("/d/a", Part(500, 900)),
        Wanted("/d/b", Part(0, 7)),
    ]  # fmt: skip
    assert learnt.wanted("set", [4]) == learnt.wanted("other", [3]) == []


def test_of_samples_that_were_not_made_yet_each_file_has_its_line():
    learnt = Learnt()
    for index in (0, 2, 3, 5, 7, 9):
        learnt.learn_read("set", [read_of(index, "/d/0", 10 * ROW)])
    for index in (10, 12, 15, 17, 18, 19):
        learnt.learn_read("set", [read_of(index, "/d/1", 10 * ROW, 10)])
    assert [each.path for each in learnt.wanted("set", [4, 16])] == ["/d/0", "/d/1"]
    assert learnt.wanted("set", [25, 400]) == []  # in neither


def test_files_that_are_read_whole_by_any_sample_are_on_no_line():
    """As shards from which each sample takes a row, after it has loaded all of it."""
    learnt = Learnt()
    for index in range(200):
        shard = f"/d/{index // 50}"
        learnt.learn_read("set", [(index, {shard: Read(20 << 20, [Part(0, 20 << 20)])})])
    assert learnt.wanted("set", [777]) == []
    assert learnt.wanted("set", [60]) == [Wanted("/d/1", Part(0, 20 << 20))]


def test_more_files_than_have_lines_cost_nothing_but_what_was_read():
    learnt = Learnt()
    for index in range(3 * MAX_LINES):
        learnt.learn_read("set", [(index, {f"/d/{index}": Read(2 << 20, [Part(0, 2 << 20)])})])
    assert len(learnt._of["set"].lines) == MAX_LINES
    assert learnt.wanted("set", [150]) == [Wanted("/d/150", Part(0, 2 << 20))]


def test_samples_that_read_something_else_each_time_are_not_guessed():
    """As windows that begin anywhere."""
    learnt, numbers = Learnt(), random.Random(5)
    for epoch in range(2):
        for index in range(200):
            start = numbers.randrange(1 << 40)
            learnt.learn_read("set", [(index, {"/d/a": Read(1 << 41, [Part(start, start + 9)])})])
        assert bool(learnt.wanted("set", [7])) == (epoch == 0)


def test_what_the_kernel_had_of_a_sample_is_not_forgotten():
    learnt = Learnt()
    whole = {"/d/a": Read(FILE, [Part(5, 9), Part(500, 900)])}
    learnt.learn_read("set", [("x", whole)])
    learnt.learn_read("set", [("x", {"/d/a": Read(FILE, [Part(500, 900)])})])
    assert learnt.wanted("set", ["x"]) == [
        Wanted("/d/a", Part(5, 9)),
        Wanted("/d/a", Part(500, 900)),
    ]


@pytest.mark.parametrize("index", ["name", [1, 2], 2.5, None, True])
def test_indices_of_any_kind_are_found_as_they_were(index):
    learnt = Learnt()
    for _ in range(6):
        learnt.learn_read("set", [(index, {"/d/a": Read(FILE, [Part(1, 2)])})])
    assert learnt.wanted("set", [index]) == [Wanted("/d/a", Part(1, 2))]
    assert learnt.wanted("set", ["else"]) == []


def test_samples_that_were_told_too_early_are_told_again_once_something_is_known():
    learnt = Learnt()
    assert learnt.wanted("set", [40, 50, 140], "trainer") == []
    assert learnt.wanted("set", [60], "other") == []
    assert learnt.wanted("else", [70], "trainer") == []
    learnt.forget("other")
    told = {}
    for index in (3, 90, 17, 31):
        assert told == {}
        told = learnt.learn_read("set", [read_of(index)])
    assert list(told) == ["trainer"]
    assert [round(each.part.start / ROW) for each in told["trainer"]] == [40, 50]
    assert learnt.learn_read("set", [read_of(8)]) == {}  # once
    assert len(learnt.wanted("set", [41], "trainer")) == 1
    for index in (103, 190, 117, 131):  # the second file
        told = learnt.learn_read("set", [read_of(index, "/d/b", FILE, 100)])
    assert [(each.path, round(each.part.start / ROW)) for each in told["trainer"]] == [("/d/b", 40)]
