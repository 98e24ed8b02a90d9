"""One arena for all workers of a loader: no two that may see memory ever have the same, and no more
is touched than is in use at once."""

import ctypes
import gc
from itertools import pairwise
from weakref import ref

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from stoker.wire.arena.circulation import Extent, FreeList
from stoker.wire.arena.extents import rounded
from stoker.wire.arena.heap import AT_ONCE_NBYTES, Heap
from stoker.wire.arena.pool import MAX_POOLED, ArenaPool
from stoker.wire.arena.regions import Regions

NUM = 3
LARGE, OTHER, SMALL = AT_ONCE_NBYTES, AT_ONCE_NBYTES + 5000, 9000
workers = st.integers(0, NUM - 1)


def offset_of(heap, view):
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) - heap.arena.address


class Worker:
    """What a worker does with its heap: see `Worker._answer`."""

    def __init__(self, regions, number):
        self.lender = regions.lenders[number]
        self.lender.take_returned()
        self.heap = Heap(regions.room(number), regions.taken(number), self.hear)
        self.making = []  # views
        self.kept = []  # by the dataset
        self.unread = []  # frames: [(offset, nbytes)], given
        self.returned = []  # on their way here

    def hear(self):
        while self.returned:
            self.heap.drop(self.returned.pop())

    def send(self, keeps):
        sent = [(offset_of(self.heap, view), len(view)) for view in self.making]
        for offset, _ in sent:
            self.heap.hold(offset)
        if keeps:
            self.kept += self.making
        self.making = []
        self.unread.append((sent, self.heap.give_away(sent)))


class Model(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.pool = ArenaPool()
        self.user = Model
        self.begin()
        self.held = []  # views that the training loop holds, and where they lie

    def begin(self):
        self.regions = self.pool.take(NUM, 1 << 26, user=self.user)
        self.workers = [Worker(self.regions, number) for number in range(NUM)]

    @rule(number=workers, nbytes=st.sampled_from([LARGE, LARGE, LARGE, OTHER, SMALL]))
    def allocate(self, number, nbytes):
        view = self.workers[number].heap.allocate(nbytes)
        assert view is not None and len(view) == nbytes
        self.workers[number].making.append(view)

    @rule(number=workers, keeps=st.integers(0, 3).map(lambda n: n == 0))
    def send(self, number, keeps):
        self.workers[number].send(keeps)

    @rule(number=workers)
    def decode(self, number):
        worker = self.workers[number]
        if worker.unread:
            sent, worker.lender.given = worker.unread.pop(0)
            self.held += [(worker.lender.lend(*each), *each) for each in sent]

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 99))
    def drop(self, which):
        del self.held[which % len(self.held)]

    @rule(number=workers)
    def tell_returned(self, number):
        worker = self.workers[number]
        worker.returned += worker.lender.take_returned()

    @rule(number=workers)
    def forget(self, number):
        self.workers[number].kept.clear()

    @rule(number=workers)
    def kill(self, number):
        self.workers[number] = Worker(self.regions, number)

    @rule(is_same_loader=st.booleans())
    def next_epoch(self, is_same_loader):
        self.regions.close()
        self.pool.give(self.regions, ref(self.user))
        self.user = self.user if is_same_loader else type("Other", (), {})
        self.begin()

    @invariant()
    def nobody_writes_to_what_others_may_see(self):
        regions = {}  # where -> who may see it; several may see one that was sent
        for number, worker in enumerate(self.workers):
            for view in worker.making:
                where = offset_of(worker.heap, view), len(view)
                assert where not in regions, "two write there"
                regions[where] = f"written by {number}"
        places = dict(regions)
        for worker in self.workers:
            for view in worker.kept:
                places[offset_of(worker.heap, view), len(view)] = "kept"
            for sent, _ in worker.unread:
                places |= dict.fromkeys(sent, "on its way")
        if self.held and self.held_are_here():
            places |= {(offset, nbytes): "held" for _, offset, nbytes in self.held}
        ends = sorted((offset, offset + rounded(nbytes)) for offset, nbytes in places)
        assert all(one[1] <= other[0] for one, other in pairwise(ends)), places
        for where, who in regions.items():
            assert places[where] == who, "it is being written, and seen by another"

    def held_are_here(self):
        """Drop what is held of another arena, which a loader with other wants has left behind."""
        own = self.regions.arena
        lent = {each.offset for lender in self.regions.lenders for each in lender.lent()}
        self.held = [each for each in self.held if each[1] in lent]
        return own is not None


Model.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestRegions = Model.TestCase


def one_round(regions, workers, number):
    worker = workers[number]
    worker.making.append(worker.heap.allocate(LARGE))
    worker.send(keeps=False)
    sent, worker.lender.given = worker.unread.pop()
    return worker.lender.lend(*sent[0]), sent[0][0]


def test_workers_touch_what_all_of_them_use_at_once():
    regions = Regions(NUM, 1 << 26, can_travel=False)
    regions.open(keeps_circulating=False)
    workers = [Worker(regions, number) for number in range(NUM)]
    seen, held = set(), []
    for turn in range(60):
        view, offset = one_round(regions, workers, turn * 7 % NUM)
        seen.add(offset)
        held = [*held[-1:], view]  # two at a time
        del view
        for lender in regions.lenders:
            assert lender.take_returned() == [], "they are anybody's, and no worker's"
    assert len(seen) == 3, "the two that are held, and one that is written"
    regions.close()
    regions.open(keeps_circulating=True)
    workers = [Worker(regions, number) for number in range(NUM)]
    for turn in range(9):
        assert one_round(regions, workers, turn % NUM)[1] in seen
        regions.lenders[turn % NUM].take_returned()


def test_what_a_killed_worker_had_is_found_again_by_the_next_workers():
    regions = Regions(2, 1 << 26, can_travel=False)
    regions.open(keeps_circulating=False)
    workers = [Worker(regions, number) for number in range(2)]
    view, offset = one_round(regions, workers, 0)
    del view
    regions.lenders[0].take_returned()
    borrowed = workers[1].heap.allocate(LARGE)
    assert offset_of(workers[1].heap, borrowed) == offset
    workers[1] = Worker(regions, 1)
    assert one_round(regions, workers, 1)[1] != offset, "nobody knows who has it"
    regions.close()
    regions.open(keeps_circulating=True)
    workers = [Worker(regions, number) for number in range(2)]
    assert one_round(regions, workers, 1)[1] == offset


def test_without_descriptors_each_worker_keeps_to_its_region(monkeypatch):
    def refuse():
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("stoker.wire.arena.circulation.FreeList", refuse)
    regions = Regions(2, 1 << 26, can_travel=False)
    regions.open(keeps_circulating=False)
    worker = Worker(regions, 1)
    view, offset = one_round(regions, [None, worker], 1)
    assert offset >= 1 << 26
    del view
    assert worker.lender.take_returned() == [offset]
    regions.close()


def test_a_free_list_gives_each_extent_once_and_is_empty_when_it_is_closed():
    free_list = FreeList()
    assert free_list.take() is None
    for number in range(3):
        free_list.put(Extent(4096 * number, 4096))
    assert [free_list.take() for _ in range(4)] == [
        *(Extent(4096 * n, 4096) for n in range(3)),
        None,
    ]
    free_list.put(Extent(0, 4096))
    free_list.close()
    free_list.put(Extent(0, 4096))
    assert free_list.take() is None


def test_a_free_list_that_is_full_forgets_and_never_waits():
    free_list = FreeList()
    for number in range(10_000):
        free_list.put(Extent(number, 4096))
    assert free_list.take() == Extent(0, 4096)
    free_list.close()


def test_a_pool_gives_an_arena_to_another_loader_only_when_nothing_of_it_is_lent():
    pool = ArenaPool()
    regions = pool.take(1, 1 << 20)
    view = regions.lenders[0].lend(0, LARGE)
    regions.close()
    pool.give(regions)
    other = pool.take(1, 1 << 20)
    assert other is not regions
    del view
    assert pool.take(1, 1 << 20) is regions


def test_a_pool_gives_a_loader_its_own_arena_again_with_the_last_batch_in_it():
    pool = ArenaPool()
    regions = pool.take(2, 1 << 26, user=Model)
    view = regions.lenders[0].lend(0, LARGE)
    regions.close()
    pool.give(regions, ref(Model))
    assert pool.take(2, 1 << 26, user=Worker) is not regions
    again = pool.take(2, 1 << 26, user=Model)
    assert again is regions and again.taken(0)[0].times == 1
    regions.close()
    pool.give(regions, ref(Model))
    views = [regions.lenders[0].lend(LARGE * number, LARGE) for number in range(1, 20)]
    assert pool.take(2, 1 << 26, user=Model) is not regions, "too much of it is held"
    del view, views


def test_a_pool_gives_each_arena_once_though_others_are_given_to_it_meanwhile():
    """As when garbage is collected in between, and another loader's iterator with it."""
    pool = ArenaPool()
    made = [pool.take(1, 1 << 20) for _ in range(3 * MAX_POOLED)]

    def lent_nbytes():
        while made:
            pool.give(made.pop())
        return 0

    last = made.pop()
    last.lent_nbytes = lent_nbytes
    pool.give(last)
    taken = [pool.take(1, 1 << 20) for _ in range(2 * MAX_POOLED)]
    assert len(set(map(id, taken))) == len(taken)


def test_a_pool_keeps_no_arena_of_which_it_could_not_hear_that_a_view_died():
    """The collector clears the weak references that belong to garbage, before finalizers run."""

    class Iterator:
        def __init__(self, pool):
            self.pool, self.regions, self.itself = pool, pool.take(1, 1 << 26), self

        def __del__(self):
            self.regions.close()
            self.pool.give(self.regions)

    def collected(lends):
        pool = ArenaPool()
        iterator = Iterator(pool)
        arena = iterator.regions.arena
        held = [iterator.regions.lenders[0].lend(4096, LARGE)] * lends
        del iterator
        gc.collect()
        return pool.take(1, 1 << 26).arena is arena, held

    assert collected(lends=0)[0], "one of which nothing is held is kept"
    assert not collected(lends=1)[0]


def test_a_pool_gives_no_arena_that_is_too_small():
    pool = ArenaPool()
    small = pool.take(1, 1 << 16)
    pool.give(small)
    assert pool.take(1, 1 << 20) is not small
    assert pool.take(2, 1 << 16) is not small


def test_memory_that_no_system_has_is_none_and_a_little_less_is_given():
    assert ArenaPool().take(1, 1 << 62) is None
    regions = ArenaPool().take(64, 1 << 46)  # 4 PiB; a process has 128 TiB
    assert regions is not None and regions.region_nbytes == 1 << 40
    pool = ArenaPool()
    pool.give(regions)
    assert pool.take(64, 1 << 46) is regions, "nobody can have more"


def test_a_pool_gives_a_loader_its_own_arena_before_others():
    pool = ArenaPool()
    others, its = (pool.take(1, 1 << 20) for _ in range(2))
    pool.give(others, ref(Worker))
    pool.give(its, ref(Model))
    assert pool.take(1, 1 << 20, user=Model) is its
    assert pool.take(1, 1 << 20, user=Model) is others
