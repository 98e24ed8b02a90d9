"""Tries things out in forked children of the training process: what samples cost, how fast stoker makes batches.

Promise: nothing of it is seen by the script, whose process waits meanwhile; a child that fails or hangs is given up.
"""

import cProfile
import itertools
import json
import os
import pickle
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from stoker.blame import is_installed
from stoker.clock import Deadline, now_s, thread_cpu_s
from stoker.config import Settings
from stoker.doctor import exam
from stoker.doctor.facts import UNTRIED, Costs, Kept, Setup, Trial
from stoker.doctor.functions import costs_by_function
from stoker.local import immortal
from stoker.poll_loop import wait_ready
from stoker.reports.metrics import FastPlace

MAX_SAMPLES = 256  # that are made one by one
WARM_S = 2.0  # until faster functions have been compared, and memory was touched
RATE_S = 4.0  # of batches that come as fast as they can
MIN_REMEMBERED, MAX_REMEMBERED = 48, 2048  # samples of a small dataset, whose epochs go by quickly
NUM_EPOCHS = 8
START_S = 2.0  # an epoch before another, whose start is measured, may take
NUM_CODED = 3  # times that a batch is encoded
MAX_EPOCHS = 1000  # of a loader with few batches
MAX_BUSY_S = 1.0  # of a step, in a trial
REMEMBER_S = 1.5  # an epoch of it may take
MORE_S = 10.0  # from the moment that a child should be done to its end


class Loop(NamedTuple):
    """Says what the script's loop does with a batch: for how long, and whether it draws random numbers."""

    busy_s: float
    draws: bool


def costs(loader: Any, setup: Setup, limit_s: float) -> Costs:
    """Return what samples of a loader cost one process."""
    told = in_child(lambda: _costs(loader, setup, limit_s / 2), limit_s + MORE_S)
    if isinstance(told, str):
        return Costs(why=told)
    return Costs(**told | {"functions": [(name, seconds) for name, seconds in told["functions"]]})


def trials(loader: Any, setup: Setup, loop: Loop, run: exam.Run) -> list[Trial]:
    """Return how fast stoker makes batches of the loader, in each way that may be of use."""
    tried = [_tried(loader, setup, loop, "stoker run", "", run)]
    if setup.num_workers < setup.cores and not setup.is_iterable:
        flags = "--chains auto"
        tried.append(_tried(loader, setup, loop, f"stoker run {flags}", flags, run))
    return tried


def kept(
    loader: Any, setup: Setup, sample_s: float, tried: list[Trial], run: exam.Run, limit_s: float
) -> Kept | None:
    """Return what becomes of the memory of work for some of the loader's samples. None if that cannot be tried."""
    works = [each for each in tried if not each.why]
    if not works or setup.is_iterable or not sample_s or not setup.num_samples:
        return None
    best = max(works, key=lambda each: each.rate)
    num = int(REMEMBER_S * setup.cores / sample_s)
    num = min(setup.num_samples, max(MIN_REMEMBERED, min(num, MAX_REMEMBERED)))
    told = in_child(lambda: _remembered(loader, setup, _settings(best.flags), run, num), limit_s)
    if isinstance(told, str):
        return Kept("samples", UNTRIED, "", told, 0.0, 0)
    return Kept(**told)


def _tried(loader: Any, setup: Setup, loop: Loop, name: str, flags: str, run: exam.Run) -> Trial:
    # Else a small dataset would be remembered before long: that is told apart.
    settings = _settings(flags)._replace(cache="off")
    limit_s = WARM_S + 4 * RATE_S + 2 * START_S + MORE_S
    told = in_child(lambda: _data_rate(loader, setup, loop, settings, run), limit_s)
    if isinstance(told, str):
        return Trial(name, flags, why=told, is_left=False)
    return Trial(name, flags, **told | {"fast": [FastPlace(**way) for way in told.get("fast", ())]})


def _settings(flags: str) -> Settings:
    chains = "auto" if "--chains auto" in flags else "script"
    return Settings(chains=chains, quiet=True, no_run_log=True, no_stalls=True)


def pickled_nbytes(dataset: Any, limit_s: float) -> int:
    """Return how large a dataset is that workers do not inherit; 0 if it cannot be told in that time."""
    told = in_child(lambda: {"nbytes": _pickled_nbytes(dataset)}, limit_s)
    return 0 if isinstance(told, str) else int(told["nbytes"])


def listed_nbytes(dataset: Any, limit_s: float) -> int:
    """Return what plain objects in the dataset's long lists take; 0 if it cannot be told in that time."""
    told = in_child(lambda: {"nbytes": immortal.nbytes_in(dataset)}, limit_s)
    return 0 if isinstance(told, str) else int(told["nbytes"])


def image_threads() -> int:
    """Return how many threads OpenCV takes in a worker; 0 if it is not there."""
    cv2 = sys.modules.get("cv2")
    with suppress(Exception):
        return int(cv2.getNumThreads()) if cv2 is not None else 0
    return 0


# ---- children

_num_children = 0


def in_child(work: Callable[[], dict[str, Any]], limit_s: float) -> Any:
    """Return what `work` returns in a forked child, or in words why it does not."""
    global _num_children
    _num_children += 1
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if not pid:
        _be_child(work, write_fd)
    os.close(write_fd)
    text, by = b"", Deadline(limit_s)
    try:
        while wait_ready(read_fd, by=by) and (more := os.read(read_fd, 1 << 16)):
            text += more
    finally:
        os.close(read_fd)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # workers that it left
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    try:
        return json.loads(text)
    except ValueError:
        return (
            f"it did not come to an end in {limit_s:.0f} s" if by.is_over() else "its process died"
        )


def _be_child(work: Callable[[], dict[str, Any]], write_fd: int) -> None:
    """Work, write down what came of it, and end without any of the script's exit handlers."""
    try:
        os.setpgid(0, 0)
        exam.leave()
        import torch

        torch.set_num_threads(1)  # those of OpenMP are not here
        seed = (
            _num_children  # each draws other samples, which no earlier one has read from the disk
        )
        random.seed(seed)
        torch.default_generator.manual_seed(seed)
        try:
            told: Any = work()
        except BaseException as error:  # whatever the script's own code raises
            told = f"{type(error).__name__}: {error}"[:200]
        with os.fdopen(write_fd, "w") as pipe:
            json.dump(told, pipe)
    finally:
        os._exit(0)


def _costs(loader: Any, setup: Setup, limit_s: float) -> dict[str, Any]:
    """Make samples one by one, then under a profiler."""
    _show_as_worker(loader)
    indices, make, size = _indices(loader), _maker(loader), setup.batch_size
    make([next(indices)])  # what is made only once
    began_s, cpu_began_s = now_s(), thread_cpu_s()
    some: list[Any] = []  # for a batch
    num = 0
    while num < MAX_SAMPLES and (not num or now_s() - began_s < limit_s / 2):
        made = make([next(indices)])
        num += len(made)
        some += made[: size - len(some)]
    made_s, cpu_s = (now_s() - began_s) / num, (thread_cpu_s() - cpu_began_s) / num
    collate_s = 0.0
    batch = some
    if loader._auto_collation:
        loader.collate_fn(list(some))
        began_s = now_s()
        batch = loader.collate_fn(list(some))
        collate_s = (now_s() - began_s) / len(some)
    profiled_s, found = _profiled(make, indices, num, limit_s / 2)
    functions = {name: made_s * seconds / profiled_s for name, seconds in found.items()}
    if collate_s:
        functions["collate"] = collate_s
    return {
        "coded_frac": _coded_frac(batch),
        "sample_s": made_s + collate_s,
        "cpu_s": cpu_s + collate_s,
        "nbytes": int(_nbytes(batch) / len(some)),
        "functions": sorted(functions.items(), key=lambda each: -each[1]),
    }


def _profiled(
    make: Callable[[Any], Any], indices: Iterator[Any], num: int, limit_s: float
) -> tuple[float, dict[str, float]]:
    profile, roots, end_s = cProfile.Profile(), {_make_one.__code__}, now_s() + limit_s
    for k in range(num):
        index = next(indices)
        profile.enable()
        try:
            _make_one(make, index)
        finally:
            profile.disable()
        if k and now_s() > end_s:
            break
    ours = __file__

    def is_others(file: str) -> bool:
        return file != ours and is_installed(file)

    found = costs_by_function(profile.getstats(), roots, is_others)
    found = {name: s for name, s in found.items() if f"({Path(ours).name}:" not in name}
    return sum(found.values()) or 1.0, found


def _make_one(make: Callable[[Any], Any], index: Any) -> Any:
    return make([index])


def _maker(loader: Any) -> Callable[[Any], list[Any]]:
    """Return what makes samples of a list of indices; of an iterable the next ones, whatever is asked for."""
    dataset = loader.dataset
    if _is_iterable(loader):
        again = itertools.chain.from_iterable(iter(dataset) for _ in itertools.count())
        return lambda indices: [next(again) for _ in indices]
    if getattr(dataset, "__getitems__", None):
        return lambda indices: list(dataset.__getitems__(indices))
    return lambda indices: [dataset[index] for index in indices]


def _indices(loader: Any) -> Iterator[Any]:
    """Return indices one by one, as the loader's sampler draws them, again and again."""
    if _is_iterable(loader):
        return itertools.repeat(None)
    drawn = Endless(loader._index_sampler)
    return itertools.chain.from_iterable(drawn) if loader._auto_collation else iter(drawn)


def _is_iterable(loader: Any) -> bool:
    from torch.utils.data import _DatasetKind

    return bool(loader._dataset_kind == _DatasetKind.Iterable)


class Endless:
    """Goes through a sampler again and again; num_left: until so many more were drawn."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self.num_left = sys.maxsize

    def __iter__(self) -> Iterator[Any]:
        for _ in range(MAX_EPOCHS):
            for drawn in self._sampler:
                if not self.num_left:
                    return
                self.num_left -= 1
                yield drawn


def _show_as_worker(loader: Any) -> None:
    """Become worker 0 of a loader that has workers to whoever asks (torch/utils/data/_utils/worker.py, 2.13)."""
    if not loader.num_workers:
        return
    from torch.utils.data import _utils

    info = _utils.worker.WorkerInfo(
        id=0, num_workers=loader.num_workers, seed=0, dataset=loader.dataset
    )
    _utils.worker._worker_info = info
    if loader.worker_init_fn is not None:
        loader.worker_init_fn(0)


def _nbytes(value: Any, depth: int = 0) -> int:
    """Return the bytes of the tensors and arrays of a batch."""
    nbytes = getattr(value, "nbytes", None)
    if isinstance(nbytes, int):
        return nbytes
    if isinstance(value, dict) and depth < 8:
        return sum(_nbytes(each, depth + 1) for each in value.values())
    if isinstance(value, list | tuple) and depth < 8:
        return sum(_nbytes(each, depth + 1) for each in value)
    return 0


def _coded_frac(batch: Any) -> float:
    """Return which share of a batch's bytes the codec sends to another machine; 0.0 where its libraries are missing."""
    try:
        from stoker.wire.lossless import Encoder, warm

        warm()
    except Exception:
        return 0.0
    encoder, sent, whole = Encoder(), 0, 0
    for array in _arrays(batch):
        coded = [encoder.encode(array) for _ in range(NUM_CODED)][-1]  # the first one learns
        whole += array.nbytes
        sent += array.nbytes if coded is None else coded.nbytes
    return sent / whole if whole else 0.0


def _arrays(value: Any, depth: int = 0) -> Iterator[Any]:
    """Go through the tensors of a batch, as NumPy shows them."""
    import torch

    if isinstance(value, torch.Tensor):
        with suppress(TypeError, RuntimeError):  # of a kind that it does not know
            yield (value.view(torch.float16) if value.dtype is torch.bfloat16 else value).numpy()
    elif isinstance(value, dict | list | tuple) and depth < 8:
        for each in value.values() if isinstance(value, dict) else value:
            yield from _arrays(each, depth + 1)


class _Counting:
    """A file that only counts."""

    def __init__(self) -> None:
        self.nbytes = 0

    def write(self, data: Any) -> int:
        self.nbytes += memoryview(data).nbytes
        return memoryview(data).nbytes


def _pickled_nbytes(dataset: Any) -> int:
    file = _Counting()
    pickle.Pickler(file, 5).dump(dataset)
    return file.nbytes


def _data_rate(
    loader: Any, setup: Setup, loop: Loop, settings: Settings, run: exam.Run
) -> dict[str, Any]:
    """Iterate the loader under stoker as fast as it goes; one without workers, of which the loop is a part, as fast as the
    script's loop."""
    run.begin(settings)
    _make_own(loader)
    num_ahead = 0  # batches that come while the first one is waited for
    if setup.num_workers or settings.chains != "script":
        num_ahead = max(setup.num_workers, run.cores()) * max(2, setup.prefetch_factor)
        if not setup.is_iterable:  # epochs of few batches would begin again and again
            name = "batch_sampler" if loader._auto_collation else "sampler"
            loader.__dict__[name] = Endless(loader._index_sampler)
    busy_s = 0.0 if num_ahead else min(loop.busy_s, MAX_BUSY_S)
    enough = 2 * max(loader.num_workers, run.cores()) + 1
    took_s, num, num_batches, is_warm = 0.0, 0, 0, False
    for _ in range(MAX_EPOCHS):
        last_s = now_s()
        for k, batch in enumerate(iter(loader)):
            before_s, last_s = last_s, now_s()
            if k > num_ahead:  # those before come faster than they are made
                took_s += last_s - before_s
                num += exam.count(loader, batch)
                num_batches += 1
            if not is_warm and took_s > WARM_S:
                took_s, num, num_batches, is_warm = 0.0, 0, 0, True
            if took_s > (RATE_S if num_batches >= enough else 3 * RATE_S):
                break
            if busy_s:
                _train(busy_s, loop.draws)
        else:
            continue
        break
    record = run.recorder().newest
    if not record.offloaded:
        return {"why": record.reasons[0]}
    if not num_batches:
        raise RuntimeError("its epochs are too short")
    num_before = max(1, min(num_ahead + 1, int(START_S * num_batches / took_s)))
    start_s = _start_s(loader, num_before) if num_ahead else 0.0
    places = run.recorder().fast() or ()
    fast = [asdict(each) for each in places]
    return {"num_workers": record.chains, "rate": num / took_s, "fast": fast, "start_s": start_s}


def _start_s(loader: Any, num: int) -> float:
    """Return how long an epoch takes to its first batch, once another one, of so many batches, has come to its end."""
    if isinstance(sampler := loader._index_sampler, Endless):
        sampler.num_left = num
        for _ in loader:
            pass
        sampler.num_left = num
    began_s = now_s()
    next(iter(loader), None)
    return now_s() - began_s


def _make_own(loader: Any) -> None:
    """Make the loader this child's: without the workers of the script, and without its device."""
    _kept.append(loader.__dict__.get("_iterator"))  # it would end the script's workers
    loader._iterator = None
    loader.__dict__["pin_memory"] = False  # CUDA cannot be used in a forked child


_kept: list[Any] = []
_never = threading.Event()


def _train(busy_s: float, draws: bool) -> None:
    """Do as the script's loop does with a batch."""
    import torch

    if draws:
        torch.rand(())
    _never.wait(busy_s)


def _remembered(
    loader: Any, setup: Setup, settings: Settings, run: exam.Run, num: int
) -> dict[str, Any]:
    """Iterate some samples of the loader under stoker, until they are served from memory."""
    from torch.utils.data import DataLoader, Subset

    run.begin(settings)
    _make_own(loader)
    num_workers = max(1, loader.num_workers, 0 if settings.chains == "script" else run.cores())
    # Batches enough for each worker to come to its pace.
    size = max(1, min(setup.batch_size, num // (4 * num_workers)))
    small: Any = DataLoader(
        Subset(loader.dataset, range(num)), size, shuffle=True,
        num_workers=loader.num_workers, collate_fn=loader.collate_fn, worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context if loader.num_workers else None,
        persistent_workers=loader.persistent_workers,
    )  # fmt: skip
    rates, starts_s = [], []
    for _ in range(NUM_EPOCHS):
        began_s = now_s()
        arrived_s = [now_s() for _ in small]
        if len(arrived_s) > 2 * num_workers:  # their first batches come at once
            starts_s.append(arrived_s[0] - began_s)
            num_later = num - num_workers * size
            rates.append(num_later / (arrived_s[-1] - arrived_s[num_workers - 1]))
        else:
            starts_s.append(0.0)
            rates.append(num / (arrived_s[-1] - began_s))
        found = run.remembered()
        places = [] if found is None else found.places
        if all(place.phase == "off" for place in places):
            break
    if found is None or not places:
        raise RuntimeError("no sample was looked at")
    place = max(places, key=lambda each: (each.num_hits, each.num_samples))
    nbytes = place.stored_nbytes / max(1, place.num_stored)
    told = Kept(
        place.place, place.phase, place.depth, place.why, nbytes, found.budget_nbytes,
        max(rates[-3:]), min(starts_s[-3:]),
    )  # fmt: skip
    return asdict(told)
