"""What differed on one machine is left alone on all of them, and the trainer is told what each remembers."""

import socket

import pytest

from stoker.memory import report
from stoker.memory.phases import EMPTY
from stoker.memory.store import Seat, make_shelf, shelves
from stoker.poll_loop import PollLoop
from stoker.remote.net import control
from stoker.remote.net.link import Link, Word
from stoker.remote.trainer.fleet import Told
from stoker.remote.trainer.hosts import Hosts

KEY, NAME, WHY = b"k" * 16, "data.py:3 Photos", "sample 3 differed when it was made again"
DIFFERED = control.Remembered("", KEY.hex(), NAME, WHY, True, list(EMPTY._replace(num_differed=1)))


class Machines:
    """The receiver's hosts, and the other ends of two hosts' links."""

    def __init__(self):
        self.said, self.loop, self.links = [], PollLoop(), []
        self.hosts = Hosts(self.loop, self.said.append, None, lambda: None, lambda: None)
        for number in range(2):
            self.join(f"node {number}")

    def join(self, name):
        ours, theirs = socket.socketpair()
        self.links.append(Link(theirs))
        self.hosts.welcome(ours, name, name)

    def heard(self, number):
        for end in self.hosts.ends:
            end.flush()
        found = []
        while (message := self.links[number].receive_nowait()) is not None:
            if message.kind == Word.REMEMBERED:
                found.append(control.decode(message.head))
        return found

    def take(self):
        found = [message for message in self.said if isinstance(message, control.Remembered)]
        self.said.clear()
        return found


@pytest.fixture
def machines():
    made = Machines()
    yield made
    for end in [*made.hosts.ends, *made.links]:
        end.close()


def tell(machines, number, told):
    machines.links[number].send(Word.REMEMBERED, 0, control.encode(told))
    machines.links[number].flush()
    machines.loop.wait(9)


def test_what_a_machine_remembers_is_told_with_its_node(machines):
    told = DIFFERED._replace(has_differed=False, why="")
    tell(machines, 0, told)
    assert machines.take() == [told._replace(host="node 0")]
    assert machines.heard(0) == machines.heard(1) == []


def test_what_differed_on_one_machine_is_told_to_all_once_and_to_those_that_come(machines):
    tell(machines, 0, DIFFERED)
    tell(machines, 0, DIFFERED)
    assert machines.heard(0) == machines.heard(1) == [DIFFERED._replace(counts=[])]
    machines.join("node 2")
    assert machines.heard(2) == [DIFFERED._replace(counts=[])]


def test_what_differed_on_the_trainers_machine_is_told_to_all(machines):
    machines.hosts.tell_differed(DIFFERED)
    assert machines.heard(0) == machines.heard(1) == [DIFFERED._replace(counts=[])]


@pytest.mark.parametrize(
    "said",
    [
        b"{",
        b"[4]",
        control.encode(control.Digests(["x"])),
        *(
            control.encode(DIFFERED._replace(**field))
            for field in (
                {"key": "no digits"}, {"counts": 5}, {"counts": ["1"]}, {"why": 3}, {"name": None},
            )
        ),
    ],
)  # fmt: skip
def test_a_host_that_says_anything_else_is_lost(said, machines):
    machines.links[0].send(Word.REMEMBERED, 0, said)
    machines.links[0].flush()
    machines.loop.wait(9)
    (left,) = [message for message in machines.said if isinstance(message, control.Left)]
    assert left.host == "node 0"


# -- the trainer's own shelf -------------------------------------------------------------------------


@pytest.fixture
def shelf(monkeypatch):
    made = make_shelf(1 << 20)
    monkeypatch.setattr(shelves, "_shelf", made)
    monkeypatch.setattr(report, "own_shelf", lambda: made)
    return made


def told_of(key=KEY, name=NAME, why="", is_there=True, **counts):
    numbers = EMPTY._replace(num_timed=8, timed_us=8000, num_learnt=16, **counts)
    return Told(key, name, why, tuple(numbers), is_there)


def test_counts_of_machines_are_added_up(shelf):
    Seat(shelf, 0).row_of(KEY, NAME).write(EMPTY._replace(num_hits=5, stored_nbytes=100))
    away = [
        told_of(num_hits=7, stored_nbytes=50),
        told_of(num_hits=2, stored_nbytes=900, is_there=False),  # a machine that has left
        told_of(b"o" * 16, "other", "prints", stored_nbytes=3),
        Told(b"x" * 16, "newer", "", (1, 2, 3), is_there=True),
    ]
    told = report.remembered(away)
    assert told.away_nbytes == 53
    assert [(each.place, each.num_hits, each.stored_nbytes) for each in told.places[:2]] == [
        (NAME, 14, 1050),
        ("other", 0, 3),
    ]
    assert told.places[1].why == "prints"


def test_what_differed_elsewhere_is_left_alone_here(shelf):
    row = Seat(shelf, 0).row_of(KEY, NAME)
    away = [told_of(why=WHY, num_differed=1), told_of(b"x" * 16, "unknown", WHY, num_differed=1)]
    report.leave_alone_here(away)
    assert row.why == WHY
    told = report.remembered(away)
    assert (told.places[0].phase, told.places[0].why) == ("off", WHY)
    assert report.differed() == []  # it is not this machine's to tell


def test_what_differed_here_is_to_be_told(shelf):
    row = Seat(shelf, 0).row_of(KEY, NAME)
    row.write(EMPTY._replace(num_differed=1))
    row.say_why(WHY)
    assert report.differed() == [(KEY, NAME, WHY)]


def test_without_a_shelf_the_others_are_told_of(monkeypatch):
    monkeypatch.setattr(report, "own_shelf", lambda: None)
    assert report.remembered() is None
    told = report.remembered([told_of(num_hits=7)])
    assert (told.budget_nbytes, told.places[0].num_hits) == (0, 7)
