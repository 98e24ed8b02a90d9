"""What dataset code can find out about the worker that it runs in."""

import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from stoker.config import Settings
from tests.equality.sides import both


class Asks(Dataset):
    """Each sample is what a question answers in the worker, as text."""

    def __init__(self, question):
        self.question = question

    def __len__(self):
        return 14

    def __getitem__(self, index):
        return repr((index, self.question(self)))


def info(dataset):
    now = get_worker_info()
    return now.id, now.num_workers, now.seed, now.dataset is dataset, now.worker_method


def generators(_):
    return (
        torch.initial_seed(), hash(random.getstate()),
        np.random.get_state()[1].tobytes(), torch.get_rng_state().sum().item(),
    )  # fmt: skip


def process(_):
    me = multiprocessing.current_process()
    return me.daemon, multiprocessing.parent_process() is not None, os.getpid() == me.pid


def signals(_):
    return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]


def blocked_signals(_):
    return signal.pthread_sigmask(signal.SIG_BLOCK, [])


def drawn_from_seed(_):
    """A generator made from the worker's seed: draws nothing global, yet differs by worker."""
    return np.random.default_rng(torch.initial_seed() % 2**32).random()


QUESTIONS = {
    "worker info": info,
    "generators": generators,
    "seeded by initial_seed": drawn_from_seed,
    "process": process,
    "thread is main": lambda _: threading.current_thread() is threading.main_thread(),
    "torch threads": lambda _: (torch.get_num_threads(), torch.get_num_interop_threads()),
    "grad mode": lambda _: (torch.is_grad_enabled(), torch.get_default_dtype()),
    "signal handlers": signals,
    "blocked signals": blocked_signals,
    "stdin": lambda _: sys.stdin is None or sys.stdin.read(),
    "working directory": lambda _: str(Path.cwd()),
    "niceness": lambda _: (os.nice(0), os.sched_getaffinity(0), os.getsid(0), os.getpgrp()),
    "environment": lambda _: {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"},
    "main module": lambda _: (sys.argv, sys.modules["__main__"].__name__),
    "gc": lambda _: (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count() > -1),
    "recursion": lambda _: (sys.getrecursionlimit(), sys.gettrace(), sys.getprofile()),
    "sharing": lambda _: torch.multiprocessing.get_sharing_strategy(),
    "nested loader": lambda _: nested(),
}


def nested():
    """A loader inside a worker works with no workers of its own, as under torch."""
    return [x.item() for x in DataLoader(list(range(3)))]


@pytest.mark.few(18)
@pytest.mark.parametrize("chains", ["script", "7"])
@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_a_worker_cannot_tell(question, chains):
    both(
        lambda w: DataLoader(Asks(question), 2, num_workers=w, collate_fn=list),
        lambda loader: (batch for _ in range(2) for batch in loader),
        workers=3,
        settings=Settings(chains=chains, quiet=True),
    )


def note(answers, worker_id):
    answers.append((worker_id, info(get_worker_info().dataset), *generators(None)))


def test_worker_init_fn_runs_seeded_and_informed():
    class Answers(Asks):
        def __init__(self):
            self.answers = []
            super().__init__(lambda dataset: dataset.answers)

    def make(num_workers):
        dataset = Answers()
        init = partial(call_on_copy, note)
        return DataLoader(dataset, num_workers=num_workers, worker_init_fn=init, collate_fn=list)

    both(make, list, workers=3)


def call_on_copy(function, worker_id):
    function(get_worker_info().dataset.answers, worker_id)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_worker_keeps_or_forgets_its_memory_as_under_torch(persistent):
    class Counts(Dataset):
        def __init__(self):
            self.seen = []

        def __len__(self):
            return 9

        def __getitem__(self, index):
            self.seen.append(index)
            return repr(self.seen)

    def run(loader):
        for _ in range(3):
            yield from loader
        yield loader.dataset.seen

    both(lambda w: DataLoader(Counts(), 2, num_workers=w, persistent_workers=persistent), run)


def test_a_subprocess_of_the_dataset_works():
    def question(_):
        return subprocess.run(["echo", "here"], capture_output=True, check=True).stdout

    both(lambda w: DataLoader(Asks(question), 5, num_workers=w), list)


def test_a_thread_pool_of_the_dataset_works():
    class Pooled(Asks):
        pool = None

        def __getitem__(self, index):
            if self.pool is None:
                self.pool = ThreadPoolExecutor(2)
            return list(self.pool.map(abs, range(-index, 0)))

    both(lambda w: DataLoader(Pooled(None), num_workers=w, collate_fn=list), list)


@pytest.mark.forks
def test_open_files_of_the_dataset_are_shared_as_under_torch(tmp_path):
    """Workers inherit one file offset; with one worker its motion is fixed."""
    file = tmp_path / "lines"
    file.write_text("".join(f"line {k}\n" for k in range(40)))

    class Lines(Asks):
        def __init__(self):
            self.file = os.open(file, os.O_RDONLY)

        def __getitem__(self, index):
            return os.read(self.file, 7)

        def __del__(self):
            os.close(self.file)

    def run(loader):
        yield from loader
        yield os.lseek(loader.dataset.file, 0, os.SEEK_CUR)

    both(lambda w: DataLoader(Lines(), 2, num_workers=w), run, workers=1)
