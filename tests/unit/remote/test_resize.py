"""A host that may have fewer workers ends the newest of each job, and tells whose they were."""

import gc
import json
import os
import socket

import pytest

from stoker.poll_loop import PollLoop
from stoker.remote.net import control
from stoker.remote.net.link import Link, Word
from stoker.remote.trainer.hosts import Hosts
from stoker.wire.arena.arena import Arena
from tests.slots import C

JOB = 7


class Machine:
    """The receiver's hosts, and the other end of one host's link, which has unpacked a job."""

    def __init__(self, name, num_cpus):
        self.said, self.loop = [], PollLoop()
        self.hosts = Hosts(self.loop, self.said.append, None, lambda: None, lambda: None)
        ours, theirs = socket.socketpair()
        self.link, self.trainers = Link(theirs), []
        self.hosts.resize("machine", num_cpus)
        self.hosts.welcome(ours, name, "a node")
        self.hosts.open(JOB)
        self.hosts.announce(JOB, json.dumps({"fingerprint": ""}).encode(), {})
        self.link.send(Word.READY, JOB)
        self.loop.wait(9)

    def start(self, slot):
        arena = Arena(1 << 20, can_travel=True)
        ours, theirs = socket.socketpair()
        self.trainers.append(ours)
        start = control.Start(JOB, slot, 0, len(self.trainers), arena.nbytes)
        self.hosts.start(start, theirs.detach(), os.dup(arena.fd))

    def heard(self):
        """Kinds and lanes of the signals that the host was sent."""
        found = []
        for end in self.hosts.ends:
            end.flush()
        while (message := self.link.receive_nowait()) is not None:
            found += [message.lane] if message.kind == Word.SIGNAL else []
        return found

    def take(self, kind):
        found = [message for message in self.said if isinstance(message, kind)]
        self.said.clear()
        return found

    def close(self):
        for sock in self.trainers:
            sock.close()
        self.hosts.close(JOB)
        for end in self.hosts.ends:
            end.close()
        self.link.close()


@pytest.fixture
def make():
    made = []

    def machine(name="machine", num_cpus=3):
        made.append(Machine(name, num_cpus))
        return made[-1]

    yield machine
    for each in made:
        each.close()
    made.clear()
    gc.collect()  # the poll loop's handlers hold what is polled, in a cycle


def test_the_newest_workers_end_and_the_job_is_told(make):
    machine = make()
    assert machine.take(control.Capacity)[-1].cpus == {"machine": 3}
    for slot in C[:3]:
        machine.start(slot)
    machine.hosts.resize("machine", 1)
    told = [(end.slot, end.cause) for end in machine.said if isinstance(end, control.Ended)]
    assert told == [(slot, control.Cause.GIVEN_BACK) for slot in C[1:3]]
    assert machine.take(control.Capacity)[-1].cpus == {"machine": 1}
    assert machine.heard() == [2, 3]


def test_a_worker_that_the_trainer_hung_up_on_does_not_count(make):
    machine = make(num_cpus=2)
    for slot in C[:2]:
        machine.start(slot)
    machine.trainers[0].close()
    machine.loop.wait(9)
    machine.hosts.resize("machine", 1)
    assert machine.take(control.Ended) == [] and machine.heard() == []


def test_a_machines_second_host_has_what_the_first_has_not(make):
    machine = make("machine.1", num_cpus=10)
    assert machine.take(control.Capacity)[-1].cpus == {"machine.1": 2}
    machine.start(C[0])
    machine.hosts.resize("machine", 8)
    assert [end.slot for end in machine.take(control.Ended)] == [C[0]]
    machine.hosts.resize("machine", 16)
    assert machine.take(control.Capacity)[-1].cpus == {"machine.1": 8}
    machine.hosts.resize("another", 1)
    assert machine.said == []


def test_a_machine_that_is_given_back_ends_by_itself(make):
    machine = make()
    machine.start(C[0])
    machine.hosts.resize("machine", 0)
    assert machine.take(control.Ended) == [] and machine.heard() == []
    machine.link.close()
    machine.loop.wait(9)
    (ended,) = (m for m in machine.said if isinstance(m, control.Ended))
    (left,) = (m for m in machine.said if isinstance(m, control.Left))
    assert ended.cause == control.Cause.GIVEN_BACK and not left.is_lost
