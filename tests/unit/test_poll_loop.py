"""Who is called for which descriptor."""

import contextlib
import os
import socket

from stoker.poll_loop import PollLoop
from stoker.wire.channel import Channel


def full(channel: Channel) -> None:
    """Its peer reads nothing, and it has more to say."""
    while not channel.has_unsent:
        channel.send(bytes(1 << 16))


def test_handlers_are_called_for_what_has_news_and_no_longer_when_removed():
    watch, called = PollLoop(), []
    pipes = [os.pipe() for _ in range(3)]
    for number, (read_fd, _) in enumerate(pipes):
        watch.add(read_fd, lambda number=number: called.append(number))
    os.write(pipes[1][1], b"x")
    watch.wait(0)
    assert called == [1]
    watch.remove(pipes[1][0])
    watch.wait(0)
    assert called == [1] and pipes[1][0] not in watch and pipes[0][0] in watch
    for fd in (fd for pipe in pipes for fd in pipe):
        os.close(fd)


def test_a_number_that_another_has_by_now_is_not_called_for_the_one_before():
    watch, called = PollLoop(), []
    first, second = os.pipe(), os.pipe()
    os.write(first[1], b"x")
    os.write(second[1], b"x")

    def replaces(mine: int, other: int, name: str) -> None:
        called.append(name)
        if other in watch:
            watch.remove(other)
            os.close(other)
            os.dup2(idle[0], other)  # the same number
            watch.add(other, lambda: called.append("of another"))

    idle = os.pipe()
    watch.add(first[0], lambda: replaces(first[0], second[0], "first"))
    watch.add(second[0], lambda: replaces(second[0], first[0], "second"))
    watch.wait(0)
    assert called in (["first"], ["second"])
    for fd in (*first, *second, *idle):
        with contextlib.suppress(OSError):
            os.close(fd)


def test_room_is_waited_for_only_where_something_waits_to_be_sent():
    watch, called = PollLoop(), []
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    watch.add(channel.fileno(), lambda: called.append(channel.has_unsent))
    watch.look_for_room([channel])
    watch.wait(0)
    assert called == []  # there is room, and nobody asked
    full(channel)
    watch.look_for_room([channel])
    watch.wait(0)
    assert called == []
    theirs.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while theirs.recv(1 << 20):
            continue
    watch.wait(0)
    assert called == [True]
    channel.flush()
    watch.look_for_room([channel])
    watch.wait(0)
    assert called == [True]
    watch.remove(channel.fileno())
    channel.close()
    theirs.close()
