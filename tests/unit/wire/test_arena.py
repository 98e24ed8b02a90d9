"""Who may write where: the lives of extents on both sides of an arena."""

import ctypes
import faulthandler
import mmap
import os
import resource
import signal

from stoker.wire.arena.arena import Arena
from stoker.wire.arena.forked_child import ForkedChild
from stoker.wire.arena.heap import AT_ONCE_NBYTES, Heap, Room
from stoker.wire.arena.lender import Lender
from stoker.wire.sections import Taken

NBYTES = 100_000


def test_a_replacement_worker_counts_an_extent_that_is_lent_twice_twice():
    arena = Arena(1 << 20)
    first, lender = Heap(Room(arena)), Lender(arena)
    view = first.allocate(NBYTES)
    assert view is not None
    one, other = lender.lend(0, NBYTES), lender.lend(0, NBYTES)  # one tensor in two batches
    replacement = Heap(Room(arena), lender.lent())
    del one
    for offset in lender.take_returned():
        replacement.drop(offset)
    assert replacement.find(arena.address) == 0, "the other view still shows it"
    del other
    for offset in lender.take_returned():
        replacement.drop(offset)
    assert replacement.find(arena.address) is None


def test_a_heap_gives_an_extent_again_once_its_view_died():
    heap = Heap(Room(Arena(1 << 17)))
    view = heap.allocate(NBYTES)
    assert view is not None and heap.allocate(NBYTES) is None
    del view
    assert heap.allocate(NBYTES) is not None


def test_a_dead_view_whose_extent_is_on_its_way_keeps_it():
    heap = Heap(Room(Arena(1 << 17)))
    view = heap.allocate(NBYTES)
    heap.hold(0)
    del view
    assert heap.allocate(NBYTES) is None
    heap.drop(0)
    assert heap.allocate(NBYTES) is not None


def test_what_is_lent_is_counted_and_comes_back_once():
    lender = Lender(Arena(1 << 20))
    view = lender.lend(8192, NBYTES)
    assert (lender.lent(), lender.lent_nbytes) == ([Taken(8192, NBYTES, 1, False)], NBYTES)
    assert lender.take_returned() == []
    del view
    assert lender.take_returned() == [8192]
    assert (lender.take_returned(), lender.lent(), lender.lent_nbytes) == ([], [], 0)


def test_what_came_back_waits_until_it_is_worth_a_message_of_its_own():
    lender = Lender(Arena(1 << 20))
    views = [lender.lend(start, 1000) for start in (0, 1024, 2048)]
    del views[0]
    assert lender.take_returned(2000) == []
    assert lender.lent_nbytes == 2000, "it is back, whether told or not"
    views.clear()
    assert sorted(lender.take_returned(2000)) == [0, 1024, 2048]
    assert lender.take_returned() == []


def test_a_heap_hears_what_came_back_before_it_takes_much():
    news = []

    def hear():
        while news:
            heap.drop(news.pop())

    heap = Heap(Room(Arena(1 << 22)), [Taken(0, AT_ONCE_NBYTES, 1, False)], hear)
    assert heap.allocate(AT_ONCE_NBYTES) is not None and heap.find(heap.arena.address) == 0
    news.append(0)
    again = heap.allocate(AT_ONCE_NBYTES)
    assert again is not None and ctypes.addressof(ctypes.c_char.from_buffer(again)) == (
        heap.arena.address
    )


def test_a_forked_process_that_may_see_a_view_keeps_it():
    lender, child = Lender(Arena(1 << 20)), ForkedChild()
    child_fd = os.dup(child._write_fd)  # as a fork would keep it
    child.in_parent()
    view = lender.lend(0, NBYTES)
    lender.seen_by(child)
    later = lender.lend(NBYTES, 10)
    del view, later
    assert lender.take_returned() == [NBYTES], "the later one came after the fork"
    assert lender.lent() == [Taken(0, NBYTES, 1, False)]
    os.close(child_fd)
    assert lender.take_returned() == [0]
    assert child.is_gone()


def test_a_process_that_is_forked_later_does_not_keep_a_view_that_had_died():
    lender, first, second = Lender(Arena(1 << 20)), ForkedChild(), ForkedChild()
    child_fds = [os.dup(child._write_fd) for child in (first, second)]
    view = lender.lend(0, NBYTES)
    first.in_parent()
    lender.seen_by(first)
    del view
    assert lender.take_returned() == []
    second.in_parent()
    lender.seen_by(second)
    os.close(child_fds[0])
    assert lender.take_returned() == [0]
    os.close(child_fds[1])
    assert second.is_gone()


def test_protected_memory_is_written_to_and_given_back_where_it_is_asked_for():
    page = mmap.PAGESIZE
    arena = Arena(4 * page, can_travel=True)
    assert arena.protect(page, 3 * page)
    arena.view(0, page)[:] = b"1" * page
    with arena.writable(page + 100, 2 * page):
        arena.view(page + 100, 2 * page)[:] = b"2" * (2 * page)
    pid = os.fork()
    if pid == 0:
        try:
            faulthandler.disable()
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            arena.view(2 * page, 1)[0] = 3
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGSEGV
    before = os.fstat(arena.fd).st_blocks
    with arena.writable(page + 100, 2 * page):
        arena.release(page + 100, 2 * page)
    assert os.fstat(arena.fd).st_blocks < before
    assert bytes(arena.view(page + 99, 3)) == b"\x0022"  # not a whole page
    assert bytes(arena.view(2 * page, page)) == bytes(page)
