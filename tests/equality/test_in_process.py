"""Loaders with num_workers=0: made ahead elsewhere where nobody can tell, else here as by torch.

Every case says what becomes of it: "" for batches that others make to the end, or part of the
reason why they are made here.
"""

import errno
import fcntl
import gc
import itertools
import logging
import multiprocessing
import os
import random
import select
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, get_worker_info

from stoker.clock import thread_cpu_s
from stoker.config import Settings
from stoker.fingerprint.written import written_pages
from stoker.intercept import run as this_run
from stoker.loaders.in_process import evidence
from stoker.loaders.in_process import iterator as spare
from tests.conftest import templates
from tests.equality.cases import DRAWS, SAMPLERS, step
from tests.equality.sides import QUIET, assert_equal, both, installed, play

COUNTER = itertools.count()
GLOBAL = {"scale": 1.0}
SAMPLE_S = 0.012  # of work: a look at this file's datasets must be small beside a batch
NUM_SAMPLES = 80
CACHED = 8  # samples


is_hurried = False  # on torch's side nothing is to be gained by work


ROUNDS_PER_S = 1_000_000  # of the loop below; where a machine is slower, so are stoker's looks


def work(seconds: float) -> None:
    """At least so long, and at least so much."""
    seconds = 0.0 if is_hurried else seconds
    end_s, rounds = thread_cpu_s() + seconds, int(seconds * ROUNDS_PER_S)
    while thread_cpu_s() < end_s or rounds > 0:
        rounds -= 1


def environment() -> str:
    return os.environ.get("IN_PROCESS", "")


def hashed() -> int:
    """Alike in all forks; on other machines only of a process that began with a seed."""
    return 0 if "PYTHONHASHSEED" in os.environ else hash("a str")


class Slow(Dataset):
    """Samples that take a while. `more(dataset, index)` is what is special about them."""

    def __init__(self, more: Callable[[Any, int], Any] = lambda dataset, index: index) -> None:
        self.more = more
        self.own = np.random.default_rng(5)
        self.scale = 1.0
        self.sample_s = SAMPLE_S
        self.counts = {"all": 0}
        self.cached = list(torch.arange(4.0 * NUM_SAMPLES).view(NUM_SAMPLES, 4))[:CACHED]

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> Any:
        work(self.sample_s)
        info = get_worker_info()
        where = (
            "none" if info is None else str(info.id),
            hashed(),
            str(Path.cwd()),
            environment(),
        )
        return self.more(self, index), index * self.scale * GLOBAL["scale"], where, torch.ones(3)


def make(num_workers: int, more: Any = None, **how: Any) -> DataLoader:
    global COUNTER
    GLOBAL["scale"], COUNTER = 1.0, itertools.count()
    dataset = Slow() if more is None else Slow(more)
    return DataLoader(dataset, **({"batch_size": 4, "num_workers": num_workers} | how))


def epochs(loader: DataLoader, num: int = 1, after: Any = lambda loader, k: None) -> Iterator[Any]:
    for _ in range(num):
        for k, batch in enumerate(loader):
            yield batch
            after(loader, k)


def worked(loader: DataLoader) -> Iterator[Any]:
    """A loop with work of its own, so that even one process beside it gains."""
    return epochs(loader, after=lambda loader, k: work(0.02))


def worked_epochs(loader: DataLoader, num: int) -> Iterator[Any]:
    return epochs(loader, num, lambda loader, k: work(0.02))


def check(
    make_loader: Any,
    run: Any,
    *,
    why: str | None = "",
    settings: Settings = QUIET,
    plain_run: Any = None,
) -> None:
    """Both sides yield the same, and the loader stays for that reason, or goes; None: whatever."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "is_hurried", True)
        plain = play(make_loader, plain_run or run, 0)
    with installed(settings):
        ours = play(make_loader, run, 0)
        reasons = [record.reasons for record in this_run.recorder()._loaders]
    assert_equal(plain, ours)
    for told in reasons if why is not None else ():
        assert (told == []) if not why else (why in told[0]), reasons


# -- mapped files ---------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def num_away():
    """Batches that other machines made for the tests that may use them."""
    seen = []
    yield seen
    assert not seen or sum(seen) > 0


@pytest.fixture(autouse=True)
def note_num_away(num_away, places):
    yield
    if places is not None:
        num_away.append(places.num_away)


@pytest.mark.few(1)
@pytest.mark.parametrize("is_written", [False, True], ids=["read", "written"])
def test_samples_of_a_mapped_file_are_made_ahead_until_somebody_writes_to_it(tmp_path, is_written):
    file = tmp_path / "tokens"

    def make_over_file(num_workers):
        np.zeros(NUM_SAMPLES, np.uint16).tofile(file)
        tokens = np.memmap(file, np.uint16, "r")
        return make(num_workers, more=lambda dataset, index: int(tokens[index]))

    def run(loader):
        for k, batch in enumerate(loader):
            yield batch
            if is_written and k == 11:
                with file.open("r+b") as opened_file:
                    opened_file.write(b"1" * 2 * NUM_SAMPLES)

    check(make_over_file, run, why="the training loop changes its state" if is_written else "")


# -- memory -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", [0, 3], ids=["at first", "meanwhile"])
def test_processes_end_where_a_second_copy_of_memory_does_not_fit(monkeypatch, when):
    """When it is asked for the `when`-th time; tests/process/test_memory.py has a real limit."""
    asked = itertools.count()
    short = lambda: "a second copy would not fit" if next(asked) >= when else ""  # noqa: E731
    monkeypatch.setattr(spare, "why_no_second_copy", short)
    monkeypatch.setattr(spare, "LOOK_AT_MEMORY_EVERY_S", 0.0)
    check(make, epochs, why="a second copy")
    assert next(asked) > when


# -- made ahead --------------------------------------------------------------------------------


IMAGES = torch.zeros(NUM_SAMPLES, 3, 64, 64)  # as a script's own tensors, named by its functions
PIXELS = IMAGES.numpy()[:, 0]
LOG = logging.getLogger(__name__)


def large(more):
    def sample(dataset, index):
        LOG.debug("a sample")
        return np.multiply(PIXELS[index, :2, :2], 2).tolist(), IMAGES[index, 0, 0, :2] + more(
            dataset
        )

    return sample


@pytest.fixture
def images():
    """Large tensors that a sample reaches by a global's name; as new."""
    if written_pages() is None:
        pytest.skip("no asynchronous userfaultfd here (Linux 6.7)")
    IMAGES.copy_(torch.arange(float(IMAGES.numel())).view_as(IMAGES))
    return IMAGES


@pytest.mark.here
@pytest.mark.parametrize("draws", ["nothing", "torch"])
def test_samples_of_large_tensors_are_made_ahead(images, draws):
    more = large((lambda dataset: 0) if draws == "nothing" else lambda dataset: torch.rand(1))
    check(partial(make, more=more, shuffle=True), partial(worked_epochs, num=2))


@pytest.mark.here
@pytest.mark.parametrize("write", ["torch", "numpy", "past the version"])
def test_a_loop_that_writes_to_large_tensors_gets_batches_of_what_it_wrote(images, write):
    def run(loader):
        IMAGES.copy_(torch.arange(float(IMAGES.numel())).view_as(IMAGES))
        for k, batch in enumerate(loader):
            yield batch
            work(0.02)
            if k == 11:
                {"torch": IMAGES, "numpy": PIXELS, "past the version": IMAGES.data}[write][:] = 5.0

    check(
        partial(make, more=large(lambda dataset: 0)), run, why="the training loop changes its state"
    )


@pytest.mark.here
def test_samples_that_write_to_large_tensors_stay(images):
    def counts(dataset, index):
        IMAGES[index, 0, 0, 0] += 1
        return float(IMAGES[index, 0, 0, 0])

    def run(loader):
        IMAGES.zero_()
        yield from worked_epochs(loader, num=2)

    check(partial(make, more=counts), run, why="its state moves")


@pytest.mark.few(1)
@pytest.mark.parametrize("how", [{}, {"drop_last": True, "batch_size": 6},
                                 {"shuffle": True}], ids=str)  # fmt: skip
def test_samples_that_draw_nothing_are_made_ahead(how):
    check(partial(make, **how), partial(epochs, num=2, after=lambda loader, k: step()))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("draws", "shuffle"), [("random", True), ("numpy", False), ("torch", True), ("some", False)]
)
def test_samples_that_draw_are_made_ahead_where_the_loop_draws_nothing(draws, shuffle):
    more = lambda dataset, index: DRAWS[draws](dataset)  # noqa: E731
    check(partial(make, more=more, shuffle=shuffle), worked)


def test_a_loop_that_draws_now_and_then_costs_a_guess_each_time():
    def draws_each_ninth(loader, k):
        work(0.02)
        if k % 9 == 8:
            step()

    more = lambda dataset, index: random.random() + torch.rand(2)  # noqa: E731
    check(partial(make, more=more), partial(epochs, after=draws_each_ninth))


@pytest.mark.few(2)
@pytest.mark.parametrize("sampler", ["shuffle", "replacement", "weighted", "distributed"])
def test_samplers_that_may_be_asked_ahead(sampler):
    def made(num_workers):
        dataset = Slow()
        dataset.sample_s *= 1 + (sampler == "distributed")  # of two ranks: half as many
        return DataLoader(dataset, 4, sampler=SAMPLERS[sampler](dataset), num_workers=num_workers)

    check(made, partial(epochs, after=lambda loader, k: step()))


def test_epochs_that_are_broken_off_and_loaders_side_by_side():
    def run(loader):
        iterator = iter(loader)
        yield from itertools.islice(iterator, 5)
        yield from itertools.islice(loader, 7)
        yield from zip(loader, iterator, strict=False)

    check(make, run, why=None)


def test_a_loop_in_another_thread():
    def run(loader):
        batches = []
        thread = threading.Thread(target=lambda: batches.extend(loader))
        thread.start()
        thread.join()
        return batches

    check(make, run)


def test_batches_are_ordinary_tensors_of_their_own():
    def run(loader):
        kept = list(loader)
        for batch in kept:
            batch[-1].add_(1)
            yield batch[-1].is_shared(), batch[-1].resize_(5).shape, batch[-1].is_pinned()
        yield [batch[:3] for batch in kept]

    check(make, run)


@pytest.mark.away_by_default
def test_no_grad_holds_in_the_samples_too():
    def run(loader):
        with torch.no_grad():
            yield from loader

    weight = torch.ones(2, requires_grad=True)
    check(partial(make, more=lambda dataset, index: (weight * index).requires_grad), run)


def test_processes_that_the_script_starts_later_have_the_names_they_would_have_had():
    def run(loader):
        before = int(multiprocessing.Process().name.rpartition("-")[2])
        yield from loader
        yield int(multiprocessing.Process().name.rpartition("-")[2]) - before

    check(make, run)


# -- made here ---------------------------------------------------------------------------------


def count(dataset, index):
    dataset.counts["all"] += 1
    return dataset.counts["all"]


def remember(dataset, index):
    return dataset.__dict__.setdefault("seen", []).append(index) or len(dataset.seen)


def hide(dataset, index):
    """From the second batch on, in a set of objects: nobody can tell whether it is the same."""
    dataset.__dict__.setdefault("calls", []).append(index)
    dataset.hidden = {object()} if len(dataset.calls) > 4 else set()
    return index


HERE = {
    "own generator": (lambda dataset, index: dataset.own.random(), "its state moves"),
    "counter": (count, "its state moves"),
    "list": (remember, "its state moves"),
    "global counter": (lambda dataset, index: next(COUNTER), "its state moves"),
    "what nobody can compare": (hide, "its state cannot be watched"),
    "pid": (lambda dataset, index: os.getpid() == PID, "uses getpid"),
    "thread": (lambda dataset, index: threading.current_thread().name, "uses current_thread"),
    "own memory": (
        lambda dataset, index: dataset.cached[index % CACHED],
        "hands out its own memory",
    ),
}
PID = multiprocessing.current_process().pid  # what is asked so follows forks


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", HERE)
def test_what_only_the_trainer_may_make_is_made_here(kind):
    more, why = HERE[kind]
    how = {"collate_fn": list} if kind == "own memory" else {}
    check(partial(make, more=more, **how), epochs, why=why)


def test_memory_of_the_dataset_that_the_loop_changes():
    """As under torch, the dataset sees what the loop does to its tensors."""

    def run(loader):
        for _ in range(2):
            for batch in loader:
                yield batch[0][0].clone()
                batch[0][0].add_(1)

    check(partial(make, more=lambda dataset, index: dataset.cached[index % CACHED], collate_fn=list), run,
          why="hands out its own memory")  # fmt: skip


def test_batches_that_come_out_otherwise_elsewhere_are_made_here():
    """As a sum over many numbers may, by the number of torch's threads: that is one in a process."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        check(partial(make, more=lambda dataset, index: torch.get_num_threads()), epochs,
              why="make something else of the same samples")  # fmt: skip
    finally:
        torch.set_num_threads(before)


def test_where_no_process_can_be_started_the_loop_goes_on(monkeypatch):
    def refuse():
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    check(make, epochs, why="no process can be started")


@pytest.mark.few(1)
@pytest.mark.parametrize("num_threads", [1, 3])
def test_now_and_then_a_batch_is_made_here_as_well(num_threads, monkeypatch):
    monkeypatch.setattr(spare, "AUDIT_EVERY", 5)
    monkeypatch.setattr(spare, "AUDIT_EVERY_THREADED", 3)
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        for draws in ("none", "torch"):
            check(partial(make, more=lambda dataset, index, d=draws: DRAWS[d](dataset)), worked)
    finally:
        torch.set_num_threads(before)


def test_samples_and_loop_that_both_draw():
    more = lambda dataset, index: random.random()  # noqa: E731
    check(partial(make, more=more), partial(epochs, after=lambda loader, k: step()),
          why="and so does the training loop")  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize("sampler", ["eager", "lazy", "subset"])
def test_samplers_that_may_not_be_asked_ahead(sampler, monkeypatch):
    monkeypatch.setattr(evidence, "MIN_SAVED_S", 0.0)  # a subset is short, whatever else runs here

    def made(num_workers):
        dataset = Slow()
        return DataLoader(dataset, 4, sampler=SAMPLERS[sampler](dataset), num_workers=num_workers)

    check(made, epochs, why="its sampler cannot be asked ahead")


IN_THE_SECOND_EPOCH = {
    "nothing": (lambda dataset, index: index, ""),
    "it draws": (lambda dataset, index: random.random(), "in some epochs only"),
    "it counts": (count, "its state moves"),
    "it hides": (
        lambda dataset, index: setattr(dataset, "own", {object()}) or 0,
        "cannot be watched",
    ),
    "it fails": (
        lambda dataset, index: 1 // (index - 2),
        "",
    ),  # its first batch, which is made here
    "no processes": (lambda dataset, index: index, "no process can be started"),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("surprise", IN_THE_SECOND_EPOCH)
def test_processes_help_in_a_later_epoch_and_a_surprise_ends_them(surprise, monkeypatch):
    more, why = IN_THE_SECOND_EPOCH[surprise]

    def refuse():
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    def epoch(loader):
        iterator = iter(loader)
        while True:
            work(0.02)
            try:
                yield next(iterator)
            except StopIteration:
                return
            except ZeroDivisionError as error:
                yield str(error)

    def run(loader):
        yield from epoch(loader)
        loader.dataset.more = more
        with monkeypatch.context() as changed:
            if surprise == "no processes":
                changed.setattr(os, "fork", refuse)
            yield from epoch(loader)
        yield random.random()
        yield from epoch(loader)

    check(make, run, why=why)


def test_a_sampler_that_is_exchanged_between_epochs_is_asked_when_torch_would_ask_it():
    class ByLoss(Sampler):
        """What it gives next depends on what the loop has said of the batch before."""

        loss = 0

        def __iter__(self):
            for k in range(NUM_SAMPLES):
                yield (self.loss + k) % NUM_SAMPLES

        def __len__(self):
            return NUM_SAMPLES

    def run(loader):
        yield from epochs(loader)
        loader.batch_sampler.sampler = sampler = ByLoss()
        for k, batch in enumerate(loader):
            sampler.loss = 3 * k
            yield batch

    check(make, run, why="its sampler cannot be asked ahead")


def test_a_peek_between_two_epochs_does_not_keep_the_loader_here():
    def run(loader):
        for num in (None, 1, None):
            yield from itertools.islice(epochs(loader), num)

    check(make, run)


def test_batches_too_short_to_hand_over():
    def made(num_workers):
        return DataLoader([torch.ones(3) * k for k in range(60)], 4, num_workers=num_workers)

    check(made, epochs, why="takes less than handing it over")


def test_epochs_too_short_to_gain_from():
    def made(num_workers):
        return DataLoader(torch.utils.data.Subset(Slow(), range(9)), 3, num_workers=num_workers)

    check(made, epochs, why="too little of the epoch is left")


def test_a_loop_that_takes_few_batches_is_not_tried_again(monkeypatch):
    # 17 batches are enough, three are too little even where a busy machine takes thrice the time.
    monkeypatch.setattr(evidence, "MIN_SAVED_S", 0.35)

    def run(loader):
        for _ in range(3):
            yield from itertools.islice(loader, 4)

    check(make, run, why="too little of the epoch is left")


def test_batches_that_cannot_be_pickled():
    def run(loader):
        for index, *_, function in loader:
            yield index, function()

    collate = lambda samples: (samples[0][0], lambda: len(samples))  # noqa: E731
    check(partial(make, collate_fn=collate), run, why="cannot be")


def test_an_iterable_dataset_stays():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(torch.rand(20))

    check(lambda num_workers: DataLoader(Stream(), 3), epochs, why="the dataset is iterable")


# -- surprises on the way ------------------------------------------------------------------------

LATE = NUM_SAMPLES // 2


def late(more: Any) -> Any:
    return lambda dataset, index: more(dataset, index) if index >= LATE else 0


def raise_at(dataset, index):
    if index == LATE:
        raise ValueError(f"sample {index} is broken")
    return index


SURPRISES = {
    "draws": (late(lambda dataset, index: random.random()), ""),
    "moves": (late(count), "its state moves"),
    "prints": (late(lambda dataset, index: print("late") or 0), "it prints"),
    "writes": (late(lambda dataset, index: Path("late.txt").write_text("late")), "it writes to"),
    "own memory": (late(lambda dataset, index: dataset.cached[index % CACHED]), None),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ["draws", "moves", "prints", "writes"])
def test_samples_that_change_their_ways_in_mid_epoch(kind, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    more, why = SURPRISES[kind]
    check(partial(make, more=more), epochs, why=why or "draw random numbers")
    assert kind != "prints" or capfd.readouterr().out == "late\n" * 2 * (NUM_SAMPLES - LATE)


def test_an_error_is_raised_where_torch_raises_it_and_the_loop_may_go_on():
    def run(loader):
        iterator = iter(loader)
        while True:
            try:
                yield next(iterator)
            except StopIteration:
                return
            except ValueError as error:
                assert error.__notes__ == [] if hasattr(error, "__notes__") else True
                yield str(error)

    check(partial(make, more=raise_at), run, why="it raises ValueError")


CHANGES = {
    "attribute": lambda loader: setattr(loader.dataset, "scale", 3.0),
    "global": lambda loader: GLOBAL.update(scale=5.0),
    "environment": lambda loader: os.environ.update(IN_PROCESS="yes"),
    "folder": lambda loader: os.chdir("/"),
    "dtype": lambda loader: torch.set_default_dtype(torch.float64),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("change", CHANGES)
def test_a_loop_that_changes_what_samples_depend_on(change, monkeypatch):
    def run(loader):
        monkeypatch.setenv("IN_PROCESS", "no")
        here = Path.cwd()
        try:
            yield from epochs(loader, 1, lambda x, k: CHANGES[change](x) if k == 9 else None)
        finally:
            os.chdir(here)
            torch.set_default_dtype(torch.float32)

    check(make, run, why="the training loop changes its state")


def grandchildren() -> list[int]:
    found = []
    for child in templates():
        found += map(int, Path(f"/proc/{child}/task/{child}/children").read_text().split())
    return found


@pytest.mark.few(1)
@pytest.mark.here
@pytest.mark.parametrize("draws", ["none", "torch"])
def test_processes_that_are_killed_change_nothing(draws):
    def run(loader, kills):
        for k, batch in enumerate(loader):
            yield batch
            work(0.02)
            if kills and k == 11:
                victims = grandchildren()
                assert victims
                for pid in victims:
                    os.kill(pid, signal.SIGKILL)

    more = lambda dataset, index: DRAWS[draws](dataset)  # noqa: E731
    check(partial(make, more=more), partial(run, kills=True), plain_run=partial(run, kills=False),
          why="died")  # fmt: skip


@pytest.mark.here
def test_processes_that_hang_are_given_up(monkeypatch):
    monkeypatch.setattr(spare, "PATIENCE_S", 0.5)

    def run(loader, stops):
        for k, batch in enumerate(loader):
            yield batch
            if stops and k == 11:
                for pid in grandchildren():
                    os.kill(pid, signal.SIGSTOP)

    check(make, partial(run, stops=True), plain_run=partial(run, stops=False), why="took more than")


@pytest.mark.here
def test_the_processes_end_with_their_iterator(tmp_path):
    gc.disable()  # they do not wait for a collection
    own = (tmp_path / "own").open("w")
    fcntl.flock(own, fcntl.LOCK_EX)  # which they hold as well
    try:
        with installed():
            iterator = iter(make(0))
            batches = [next(iterator) for _ in range(6)]
            (template,) = templates()
            pidfd = os.pidfd_open(template)
            del iterator
            own.close()
            with (tmp_path / "own").open("w") as again:
                fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ended = select.poll()
            ended.register(pidfd, select.POLLIN)
            assert ended.poll(10_000), "still there"
            os.close(pidfd)
    finally:
        gc.enable()
    assert len(batches) == 6


# -- what is said --------------------------------------------------------------------------------


def test_the_line_names_what_to_try_and_its_price(capfd):
    with installed(Settings()):
        for _ in epochs(make(0, count), num=2):
            work(0.01)
    lines = [line for line in capfd.readouterr().err.splitlines() if "stays with torch" in line]
    assert len(lines) == 1
    assert "num_workers=0: its state moves; --chains 2 gives it 2 workers (random" in lines[0]


@pytest.mark.forks  # to import this file starts a thread
@pytest.mark.few(1)
@pytest.mark.parametrize("chains", ["1", "3"])
def test_chains_gives_a_loader_workers(chains):
    def made(num_workers):
        return DataLoader(Slow(lambda dataset, index: DRAWS["all"](dataset)), 3, True,
                          num_workers=num_workers)  # fmt: skip

    both(made, epochs, workers=0, settings=Settings(chains=chains, quiet=True))
