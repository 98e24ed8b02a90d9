"""What workers are seen to be at: counted, written to a row, read again."""

from stoker.runs.crew import (
    AWAY,
    GONE,
    IDLE,
    LOST,
    MAX_PLACES,
    NBYTES,
    NOBODY,
    At,
    Looks,
    busy_of,
    read_row,
)
from stoker.scheduler.tasks.slot import Role
from stoker.wire import marks


def at(number, making, owes=(), is_here=True, role=0):
    return At(role, number, is_here, making, list(owes))


def read(looks):
    return read_row(looks.row().ljust(NBYTES, b"\0"))


def test_words_in_place_of_a_task_are_the_marks_own():
    assert (IDLE, GONE) == (marks.NOTHING, marks.LOST)


def test_who_makes_something_is_busy():
    looks = Looks()
    for making in (3, 4, IDLE, IDLE):
        looks.add([(0, 0, [at(0, making), at(1, 9)])])
    crew = read(looks)
    assert crew.num_looks == 4
    assert [(p.num_looks, p.num_busy) for p in crew.places] == [(4, 2), (4, 4)]
    assert busy_of(NOBODY, crew) == "5a"


def test_between_two_looks_only_what_is_new_counts():
    looks = Looks()
    looks.add([(0, 0, [at(0, 1)])])
    before = read(looks)
    looks.add([(0, 0, [at(0, IDLE)])])
    assert busy_of(before, read(looks)) == "0"


def test_a_lost_worker_is_lost_until_another_has_come():
    looks = Looks()
    looks.add([(0, 0, [at(0, 1), at(1, 1)])])
    before = read(looks)
    looks.add([(0, 0, [at(0, 1), at(1, GONE)])])
    crew = read(looks)
    assert busy_of(before, crew) == "ax"
    assert [place.flags for place in crew.places] == [0, LOST]
    looks.add([(0, 0, [at(0, 1), at(1, 1)])])
    assert busy_of(crew, read(looks)) == "aa"


def test_one_that_was_ended_or_whose_loader_is_over_is_not_lost():
    looks = Looks()
    looks.add([(0, 0, [at(0, 1), at(1, 1)]), (1, 0, [at(0, 1)])])
    before = read(looks)
    looks.add([(0, 0, [at(0, 1)])])
    assert busy_of(before, read(looks)) == "a--"


def test_a_chain_that_moves_to_another_machine_keeps_its_place():
    looks = Looks()
    looks.add([(0, 0, [at(0, 1)])])
    before = read(looks)
    looks.add([(0, 0, [at(0, 1, is_here=False)])])
    crew = read(looks)
    assert [place.flags for place in crew.places] == [AWAY]
    assert busy_of(before, crew) == "a"


def test_slots_of_other_roles_have_places_of_their_own():
    looks = Looks()
    looks.add([(0, 0, [at(0, 1), at(0, IDLE, role=int(Role.REMOTE), is_here=False)])])
    assert busy_of(NOBODY, read(looks)) == "a0"


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
    looks.add([(0, 2, [at(0, 5, [5, 6], is_here=False), at(1, 5)])])
    assert read(looks).num_ready == 2


def test_more_workers_than_there_is_room_for_are_left_out():
    looks = Looks()
    looks.add([(0, 0, [at(k, 1) for k in range(MAX_PLACES + 5)])])
    assert len(read(looks).places) == MAX_PLACES
    assert len(looks.row()) == NBYTES
