"""Loops that run for long hold no more than short ones: memory regions, fds, processes."""

import contextlib
import fcntl
import gc
import os
import sqlite3
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from tests.conftest import descendants, open_fds, settle
from tests.equality.sides import installed


def num_mapped_regions():
    return Path("/proc/self/maps").read_text().count("/dev/zero (deleted)")


def mapped_nbytes():
    """Memory of arenas that exists: of their address space only touched pages do."""
    nbytes, is_arena = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            is_arena = "/dev/zero (deleted)" in line
        elif is_arena and line.startswith("Rss:"):
            nbytes += int(line.split()[1]) * 1024
    return nbytes


def loop(persistent, epochs=1, keep=False):
    loader = DataLoader(
        torch.rand(16, 50_000), 4, num_workers=2, persistent_workers=persistent
    )  # 800 KB a batch
    kept = [batch for _ in range(epochs) for batch in loader if keep]
    del loader
    gc.collect()
    return kept


@pytest.mark.few(2)
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("keep", [False, True], ids=["dropped", "kept and dropped"])
def test_the_hundredth_epoch_holds_no_more_than_the_second(persistent, keep):
    processes = descendants()
    with installed():
        loop(persistent, 2, keep)
        settle(processes)
        before = num_mapped_regions(), mapped_nbytes(), open_fds()
        for _ in range(4):
            loop(persistent, 3, keep)
        settle(processes)
        after = num_mapped_regions(), mapped_nbytes(), open_fds()
    assert after[0] <= before[0] + 4  # a pool may differ by what was in flight, not by epochs
    assert after[1] <= before[1] + 8 * 800_000
    assert after[2] == before[2]


def test_kept_batches_hold_no_file_descriptors():
    """Neither for themselves nor for the processes that are forked while they are kept."""
    processes = descendants()
    with installed():
        kept = loop(False, 1, keep=True)
        settle(processes)
        before = sum(open_fds().values())
        kept += loop(False, 20, keep=True)
        settle(processes)
        assert sum(open_fds().values()) <= before + 4
        assert len(kept) == 84


def fork_and_wait():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


@pytest.mark.parametrize("in_loop", [False, True], ids=["after the loop", "in the loop"])
def test_forks_of_the_users_while_a_batch_is_kept_hold_no_file_descriptors(in_loop):
    with installed():
        kept, before = [], 0
        for batch in DataLoader(torch.rand(32, 50_000), 1, num_workers=1):
            kept.append(batch)
            before = before or sum(open_fds().values())
            if in_loop:
                fork_and_wait()
        for _ in range(0 if in_loop else 32):
            fork_and_wait()
        assert sum(open_fds().values()) <= before + 4
        assert len(kept) == 32


@pytest.mark.parametrize(
    "end",
    {
        "break": lambda loader: next(iter(loader)),
        "exhausted": list,
        "del iterator": lambda loader: loader.__dict__.pop("_iterator", None),
        "shutdown": lambda loader: iter(loader)._shutdown_workers(),
        "twice": lambda loader: [iter(loader)._shutdown_workers() for _ in range(2)],
    }.items(),
    ids=lambda end: end[0],
)
@pytest.mark.parametrize("persistent", [False, True])
def test_every_worker_ends_with_its_iterator(end, persistent):
    with installed():
        before = descendants()
        loader = DataLoader(torch.rand(64, 10), 2, num_workers=3, persistent_workers=persistent)
        iterator = iter(loader)
        next(iterator)
        pids = {worker.pid for worker in iterator._workers}
        assert pids <= descendants() - before
        assert len(pids) == 3
        del iterator
        end[1](loader)
        del loader
        gc.collect()
        settle(before)
        assert descendants() == before


class Holds(Dataset):
    """Each worker locks files and a database of its own until it is gone, and tells its pid."""

    def __init__(self, folder):
        self.folder, self.held = folder, []

    def __len__(self):
        return 16

    def __getitem__(self, index):
        if not self.held:
            self.held = locked(self.folder / str(os.getpid()))
        return os.getpid()


def locked(path):
    """Raises if anybody holds one of them."""
    whole, part = path.with_suffix(".whole").open("w"), path.with_suffix(".part").open("w")
    fcntl.flock(whole, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.lockf(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
    base = sqlite3.connect(path.with_suffix(".sqlite"), timeout=0)
    base.execute("begin exclusive")
    return [whole, part, base]


def until_an_error(loader):
    with contextlib.suppress(KeyError):
        for batch in loader:
            yield from batch.tolist()
            raise KeyError("the loop's")


@pytest.mark.parametrize(
    "pids_of",
    {
        "the end": lambda loader: [pid for batch in loader for pid in batch.tolist()],
        "a break": lambda loader: next(iter(loader)).tolist(),
        "an error": lambda loader: list(until_an_error(loader)),
    }.items(),
    ids=lambda how: how[0],
)
def test_workers_are_gone_and_their_locks_free_in_the_next_statement(pids_of, tmp_path):
    own = (tmp_path / "own.whole").open("w")
    fcntl.flock(own, fcntl.LOCK_EX)  # which workers, and who forks them, hold as well
    with installed():
        pids = set(pids_of[1](DataLoader(Holds(tmp_path), 2, num_workers=2)))
        alive = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        own.close()
        for held in [*(locked(tmp_path / str(pid)) for pid in pids), locked(tmp_path / "own")]:
            for each in held:
                each.close()
    assert pids and not alive


def test_iterators_in_a_cycle_are_collected():
    with installed():
        before = descendants()
        loader = DataLoader(torch.rand(8, 1), num_workers=1)
        holder = {"iterator": iter(loader)}
        holder["itself"] = holder
        del holder
        gc.collect()
        settle(before)
        assert descendants() == before


def test_in_a_cycle_sockets_may_be_finalized_before_their_iterator():
    """The collector ends the objects of a cycle in any order; here, in the worst."""
    with installed():
        before = descendants()
        iterator = iter(DataLoader(torch.rand(8, 1), num_workers=2))
        next(iterator)
        driver = iterator._driver
        sockets = [line.channel._socket for line in driver._lines._lines.values()]
        for sock in (driver._workers._here._control, *sockets):
            type(sock).__del__(sock)
        del driver, sockets, sock, iterator
        settle(before)
        assert descendants() == before


def test_a_forked_child_of_the_users_does_not_end_our_workers():
    with installed():
        iterator = iter(DataLoader(torch.rand(32, 4), num_workers=2))
        first = next(iterator)
        pid = os.fork()
        if pid == 0:
            del iterator  # as when the child's interpreter ends
            gc.collect()
            os._exit(0)
        os.waitpid(pid, 0)
        assert len([first, *iterator]) == 32
