"""Workers that are started from one unpickled copy of a dataset, or from one each where that would show."""

import copyreg
import mmap
import multiprocessing
import os
import queue
import random
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from stoker.clock import Deadline
from stoker.config import Settings
from tests import methods
from tests.equality.sides import both, installed, torch_is_quick_to_terminate

NUM, BATCH = 12, 2


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    """The process that forkserver forks from, with all that is imported here."""
    with methods.helpers(__name__):
        yield


class Fresh(Dataset):
    """Makes something where it is unpickled, and each of its samples is taken from that."""

    def __init__(self, folder: Path) -> None:
        self.file = str(folder / "letters")
        Path(self.file).write_bytes(b"abcdefghijklmnopqrstuvwxyz")

    def __len__(self) -> int:
        return NUM

    def __getstate__(self) -> dict[str, Any]:
        return {"file": self.file}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.begin()

    def __getitem__(self, index: int) -> Any:
        return index, get_worker_info().id, self.sample()

    def begin(self) -> None:
        raise NotImplementedError

    def sample(self) -> Any:
        raise NotImplementedError


class OpenFile(Fresh):
    """Each sample is what comes next in a file."""

    def begin(self) -> None:
        self.opened = open(self.file, "rb", buffering=0)  # noqa: SIM115, PTH123

    def sample(self) -> int:
        return self.opened.read(1)[0]


class MappedAndRead(OpenFile):
    """The same file is mapped too, which explains one descriptor of the two."""

    def begin(self) -> None:
        super().begin()
        self.mapped = mmap.mmap(self.opened.fileno(), 0, prot=mmap.PROT_READ)


class Sockets(Fresh):
    def begin(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.theirs.send(bytes(range(NUM)))

    def sample(self) -> int:
        return self.ours.recv(1)[0]


class Thread(Fresh):
    def begin(self) -> None:
        self.made: queue.Queue[int] = queue.Queue(1)
        threading.Thread(target=lambda: [*map(self.made.put, range(NUM))], daemon=True).start()

    def sample(self) -> int:
        return self.made.get(timeout=30)


class SharedMemory(Fresh):
    """A counter in memory that a worker shares with what it forks."""

    def begin(self) -> None:
        self.count = mmap.mmap(-1, 1)

    def sample(self) -> int:
        self.count[0] += 1
        return self.count[0]


class Shared(Dataset):
    """Holds a tensor, and is pickled while another loader's dataset is."""

    def __init__(self, begun: threading.Barrier) -> None:
        self.tensor, self.begun = torch.arange(NUM), begun

    def __len__(self) -> int:
        return NUM

    def __getstate__(self) -> dict[str, Any]:
        self.begun.wait(timeout=60)
        return {"tensor": self.tensor}

    def __getitem__(self, index: int) -> Any:
        return self.tensor[index]


class Entropy(Fresh):
    def begin(self) -> None:
        self.drawn = self.draw()

    def draw(self) -> int:
        return secrets.randbits(40)

    def sample(self) -> int:
        return self.drawn


class NumpysEntropy(Entropy):
    def draw(self) -> int:
        return int(np.random.default_rng().integers(1 << 40))


class PythonsEntropy(Entropy):
    def draw(self) -> int:
        return random.Random().getrandbits(40)


class TorchsEntropy(Entropy):
    def draw(self) -> int:
        return torch.Generator().seed() >> 12


class Clock(Entropy):
    def draw(self) -> int:
        return time.monotonic_ns()


class Process(Entropy):
    def draw(self) -> int:
        return os.getpid()


class PythonsOwn(Entropy):
    def draw(self) -> int:
        return random.randrange(1 << 40)


class NumpysOwn(Entropy):
    def draw(self) -> int:
        return int(np.random.randint(1 << 40))


class Subprocess(Entropy):
    """One process a worker."""

    def draw(self) -> int:
        with subprocess.Popen(["true"]) as started:
            return started.pid


def make(num_workers: int, dataset: Any, method: str = "forkserver") -> DataLoader:
    return DataLoader(dataset, BATCH, num_workers=num_workers, multiprocessing_context=method)


def epochs(loader: DataLoader) -> Any:
    for _ in range(2):
        yield from loader


@pytest.mark.parametrize("kind", [OpenFile, MappedAndRead, Sockets, Thread, SharedMemory])
def test_what_unpickling_leaves_in_a_process_is_each_workers_own(kind, tmp_path, capfd):
    with installed(Settings(no_run_log=True)):
        ours = list(epochs(make(2, kind(tmp_path))))
    assert "so each worker needs a copy of its own" in capfd.readouterr().err
    assert repr(ours) == repr(list(epochs(make(2, kind(tmp_path)))))


CALLS = (
    Entropy,
    NumpysEntropy,
    PythonsEntropy,
    TorchsEntropy,
    Clock,
    Process,
    PythonsOwn,
    Subprocess,
)


@pytest.mark.parametrize("kind", [*CALLS, NumpysOwn])
def test_what_no_two_processes_are_told_alike_is_each_workers_own(kind, tmp_path, capfd):
    with installed(Settings(no_run_log=True)):
        drawn = [
            tuple(map(tuple, zip(*batch[1:], strict=True))) for batch in make(2, kind(tmp_path))
        ]
    why = "drew from NumPy's own" if kind is NumpysOwn else "called"
    assert f"unpickling it {why}" in capfd.readouterr().err
    by_worker = {(int(worker), int(value)) for batch in drawn for worker, value in batch}
    if kind is not NumpysOwn:  # which the server may have loaded, and then workers have it alike
        assert len(by_worker) == len({value for _, value in by_worker}) == 2


class ChangedMeanwhile(OpenFile):
    """Is changed by the loop after iter(), and left to torch."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.mode = "as it was at iter()"

    def __getstate__(self) -> dict[str, Any]:
        return {"file": self.file, "mode": self.mode}

    def sample(self) -> str:
        return self.mode


def test_what_is_left_to_torch_is_pickled_at_iter_and_no_more_often_later(tmp_path, monkeypatch):
    picklings: list[int] = []
    kept = ChangedMeanwhile.__getstate__
    monkeypatch.setattr(
        ChangedMeanwhile, "__getstate__", lambda self: (picklings.append(0), kept(self))[1]
    )

    def seen() -> Any:
        dataset = ChangedMeanwhile(tmp_path)
        for epoch in range(3):  # a loader of its own, as many scripts make one
            batches = iter(make(1, dataset))
            dataset.mode = f"changed in epoch {epoch}"
            yield next(batches)
            picklings.append(1)

    plain = repr(list(seen()))
    picklings.clear()
    with installed(Settings(no_run_log=True)):
        assert repr(list(seen())) == plain
    # By us first, in the first epoch alone.
    assert picklings == [0, 0, 1, 0, 1, 0, 1]


def test_two_threads_start_loaders_at_once(tmp_path):
    reducers = ForkingPickler._extra_reducers  # type: ignore[attr-defined]
    before = reducers[torch.UntypedStorage]
    begun = threading.Barrier(2)
    seen: list[Any] = []
    with installed(Settings(no_run_log=True)):
        threads = [
            threading.Thread(target=lambda: seen.append(list(make(1, Shared(begun)))))
            for _ in range(2)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert torch.cat([*map(torch.cat, seen)]).tolist() == [*range(NUM)] * 2
    assert reducers[torch.UntypedStorage] is before


class Usual(Dataset):
    """What many datasets hold, and one copy can stand for."""

    def __init__(self, folder: Path, context: Any) -> None:
        np.save(folder / "rows.npy", np.arange(4 * NUM).reshape(NUM, 4))
        self.file = str(folder / "rows.npy")
        self.pairs = [(f"file {k}", k) for k in range(1000)]
        self.tensor, self.shared = torch.arange(NUM), torch.zeros(NUM).share_memory_()
        self.count, self.lock, self.queue = context.Value("i", 0), context.Lock(), context.Queue()
        self.array = context.Array("d", NUM)
        self.own = random.Random(5), np.random.default_rng(6), np.random.RandomState(7)
        self.num_drawn = 0

    def __len__(self) -> int:
        return NUM

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"rows": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.rows = np.load(self.file, mmap_mode="r")

    def __getitem__(self, index: int) -> Any:
        self.num_drawn += 1
        with self.lock, self.count.get_lock():
            self.count.value += 1
        self.shared[index] += 1
        self.array[index] += 1
        python, numpy, old = self.own
        drawn = python.random(), numpy.random(), old.random_sample()
        name, number = self.pairs[index]
        return name, number, self.rows[index].copy(), self.tensor[index], self.num_drawn, *drawn


@pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.full)])
def test_what_datasets_hold_is_unpickled_once_for_all_workers(method, tmp_path, capfd):
    made: list[Usual] = []

    def loader_of(num_workers: int) -> DataLoader:
        made.append(Usual(tmp_path, multiprocessing.get_context(method)))
        return make(num_workers, made[-1], method)

    both(loader_of, epochs, settings=Settings(no_run_log=True))
    assert "stays with torch" not in capfd.readouterr().err
    for dataset in made:
        assert dataset.count.value == 2 * NUM
        assert dataset.shared.tolist() == list(dataset.array) == [2.0] * NUM


class Unpickles(Fresh):
    """Cannot be unpickled: an error of the script's, no memory for one more copy, a process that is killed."""

    how = ""

    def __getstate__(self) -> dict[str, Any]:
        return {"file": self.file, "how": self.how}

    def begin(self) -> None:
        if self.how == "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        raise MemoryError if self.how == "MemoryError" else ValueError("no such thing here")


@pytest.mark.parametrize(
    "how", ["ValueError", pytest.param("MemoryError", marks=pytest.mark.full), "SIGKILL"]
)
def test_what_cannot_be_unpickled_is_told_as_torch_tells_it(tmp_path, monkeypatch, how):
    monkeypatch.setattr(Unpickles, "how", how)
    told = []
    for side in (Settings(off=True, quiet=True), Settings(quiet=True)):
        raises = pytest.raises(RuntimeError, match="exited unexpectedly")
        with installed(side), torch_is_quick_to_terminate(), raises as caught:
            next(iter(make(1, Unpickles(tmp_path))))
        told.append(caught.value.args[0].partition("(pid")[0])
    assert told[0] == told[1]


class Waits(Fresh):
    """Is unpickled until somebody ends it."""

    def begin(self) -> None:
        started = Path(f"{self.file}.new")
        started.write_text(str(os.getpid()))
        started.rename(f"{self.file}.pid")
        threading.Event().wait()


class Interrupted(Exception):
    pass


def test_a_handler_may_end_iter_while_a_dataset_is_unpickled(tmp_path):
    def interrupt(signum: int, frame: object) -> None:
        raise Interrupted

    dataset = Waits(tmp_path)
    told, started = Path(f"{dataset.file}.pid"), Deadline(60)

    def interrupts() -> None:
        while not told.exists() and not started.is_over():
            os.sched_yield()
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    thread = threading.Thread(target=interrupts)
    try:
        with installed(Settings(no_run_log=True)), pytest.raises(Interrupted):
            thread.start()
            iter(make(1, dataset))
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    ended = Deadline(10)
    while Path("/proc", told.read_text()).exists():
        assert not ended.is_over()


class Picklings(Entropy):
    """Cannot be pickled a second time."""

    num = 0  # of the class

    def __reduce__(self) -> Any:
        type(self).num += 1
        if self.num > 1:
            raise ValueError("pickled before")
        return copyreg.__newobj__, (type(self),), self.__getstate__()

    def draw(self) -> int:
        return 5


def test_an_error_of_pickling_in_the_second_epoch_comes_as_in_torch(tmp_path):
    loader = make(1, Picklings(tmp_path))
    with installed():
        assert len(list(loader)) == NUM // BATCH
        with pytest.raises(ValueError, match="pickled before"):
            iter(loader)
