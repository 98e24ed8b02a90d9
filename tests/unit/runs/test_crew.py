"""What workers are seen to be at: counted, written to a row, read again."""

from stoker.runs.crew import (
    AWAY,
    IDLE,
    MAX_PLACES,
    NBYTES,
    NOBODY,
    THERE,
    At,
    Looks,
    busy_of,
    read_row,
)


def at(number, making, owes=(), is_here=True):
    return At(number, is_here, making, list(owes))


def read(looks):
    return read_row(looks.row().ljust(NBYTES, b"\0"))


def test_who_makes_something_is_busy():
    looks = Looks()
    for making in (3, 4, IDLE, IDLE):
        looks.add([(0, 0, [at(0, making), at(1, 9)])])
    crew = read(looks)
    assert crew.num_looks == 4
    assert [(p.num_looks, p.num_busy) for p in crew.places] == [(4, 2), (4, 4)]
    assert busy_of(NOBODY, crew) == "59"


def test_between_two_looks_only_what_is_new_counts():
    looks = Looks()
    looks.add([(0, 0, [at(0, 1)])])
    before = read(looks)
    looks.add([(0, 0, [at(0, IDLE)])])
    assert busy_of(before, read(looks)) == "0"


def test_who_is_gone_while_others_are_there_is_lost():
    looks = Looks()
    looks.add([(0, 0, [at(0, 1), at(1, 1)])])
    before = read(looks)
    looks.add([(0, 0, [at(0, 1)])])
    crew = read(looks)
    assert busy_of(before, crew) == "9x"
    assert crew.num_lost == 1
    looks.add([(0, 0, [at(0, 1), at(1, 1)])])  # another one came
    assert busy_of(crew, read(looks)) == "99"


def test_workers_of_a_loader_that_is_over_are_not_lost():
    looks = Looks()
    looks.add([(0, 0, [at(0, 1)]), (1, 0, [at(0, 1)])])
    before = read(looks)
    looks.add([(1, 0, [at(0, 1)])])
    assert busy_of(before, read(looks)) == "-9"


def test_batches_that_wait_are_counted_in_sockets_too():
    looks = Looks()
    looks.add([(0, 1, [at(0, IDLE, [1, 2])])])  # it only starts
    assert read(looks).num_ready == 1
    looks.add([(0, 1, [at(0, 2, [1, 2, 3])])])  # one is done, one at work, one to do
    assert read(looks).num_ready == 1 + 2
    looks.add([(0, 0, [at(0, IDLE, [1, 2, 3])])])
    assert read(looks).num_ready == 1 + 2 + 3


def test_of_other_machines_only_what_has_come_counts():
    looks = Looks()
    looks.add([(0, 2, [at(0, 5, [5, 6], is_here=False), at(0, 5)])])
    looks.add([(0, 2, [at(0, IDLE, [], is_here=False)])])
    crew = read(looks)
    assert crew.num_ready == 4
    assert [place.flags for place in crew.places] == [THERE | AWAY, 0]


def test_more_workers_than_there_is_room_for_are_left_out():
    looks = Looks()
    looks.add([(0, 0, [at(k, 1) for k in range(MAX_PLACES + 5)])])
    assert len(read(looks).places) == MAX_PLACES
    assert len(looks.row()) == NBYTES
