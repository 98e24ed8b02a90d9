"""Tries things out in forked children of the training process: what samples cost, how fast stoker makes batches.

Promise: nothing of it is seen by the script, whose process waits meanwhile; a child that fails or hangs is given up.
"""

import cProfile
import itertools
import json
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stoker.blame import is_installed
from stoker.clock import Deadline, now_s
from stoker.config import Settings
from stoker.doctor import exam
from stoker.doctor.facts import Costs, Kept, Setup, Trial, Way
from stoker.doctor.functions import costs_by_function
from stoker.poll_loop import wait_ready
from stoker.reports.samples import num_samples

MAX_SAMPLES = 256  # that are made one by one
RATE_S = 4.0  # of batches that come as fast as they can
MIN_REMEMBERED, MAX_REMEMBERED = 48, 2048  # samples of a small dataset, whose epochs go by quickly
NUM_EPOCHS = 8
MAX_EPOCHS = 50  # of a loader with few batches
REMEMBER_S = 1.5  # an epoch of it may take
MORE_S = 10.0  # from the moment that a child should be done to its end


def costs(loader: Any, limit_s: float) -> Costs:
    """Return what samples of a loader cost one process."""
    told = in_child(lambda: _costs(loader, limit_s / 2), limit_s + MORE_S)
    if isinstance(told, str):
        return Costs(why=told)
    return Costs(**told | {"functions": [(name, seconds) for name, seconds in told["functions"]]})


def trials(loader: Any, setup: Setup, run: exam.Run) -> list[Trial]:
    """Return how fast stoker makes batches of the loader, in each way that may be of use."""
    tried = [_tried(loader, "stoker run", "", run)]
    if setup.num_workers < setup.cores and not setup.is_iterable:
        tried.append(_tried(loader, "stoker run --chains auto", "--chains auto", run))
    return tried


def kept(
    loader: Any, setup: Setup, sample_s: float, tried: list[Trial], run: exam.Run, limit_s: float
) -> tuple[Kept | None, float]:
    """Return what becomes of the memory of work for some of the loader's samples, and the rate of batches then.
    None if that cannot be tried."""
    works = [each for each in tried if not each.why]
    if not works or setup.is_iterable or not sample_s:
        return None, 0.0
    best = max(works, key=lambda each: each.rate)
    num = int(REMEMBER_S * setup.cores / sample_s)
    num = min(setup.num_samples, max(MIN_REMEMBERED, min(num, MAX_REMEMBERED)))
    told = in_child(lambda: _remembered(loader, _settings(best.flags), run, num), limit_s)
    if isinstance(told, str):
        return Kept("samples", "off", "", told, 0.0, 0), 0.0
    return Kept(**told["kept"]), told["rate"]


def _tried(loader: Any, name: str, flags: str, run: exam.Run) -> Trial:
    told = in_child(lambda: _data_rate(loader, _settings(flags), run), 3 * RATE_S + MORE_S)
    if isinstance(told, str):
        return Trial(name, flags, why=told)
    return Trial(name, flags, **told | {"fast": [Way(**way) for way in told.get("fast", ())]})


def _settings(flags: str) -> Settings:
    chains = "auto" if "--chains auto" in flags else "script"
    return Settings(chains=chains, quiet=True, no_run_log=True, no_stalls=True)


def pickled_nbytes(dataset: Any, limit_s: float) -> int:
    """Return how large a dataset is that workers do not inherit; 0 if it cannot be told in that time."""
    told = in_child(lambda: {"nbytes": _pickled_nbytes(dataset)}, limit_s)
    return 0 if isinstance(told, str) else int(told["nbytes"])


def image_threads() -> int:
    """Return how many threads OpenCV takes in a worker; 0 if it is not there."""
    cv2 = sys.modules.get("cv2")
    with suppress(Exception):
        return int(cv2.getNumThreads()) if cv2 is not None else 0
    return 0


# ---- children


def in_child(work: Callable[[], dict[str, Any]], limit_s: float) -> Any:
    """Return what `work` returns in a forked child, or in words why it does not."""
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
        try:
            told: Any = work()
        except BaseException as error:  # whatever the script's own code raises
            told = f"{type(error).__name__}: {error}"[:200]
        with os.fdopen(write_fd, "w") as pipe:
            json.dump(told, pipe)
    finally:
        os._exit(0)


def _costs(loader: Any, limit_s: float) -> dict[str, Any]:
    """Make samples one by one, then under a profiler."""
    _show_as_worker(loader)
    batches = _index_lists(loader)
    size = max(1, getattr(loader, "batch_size", None) or 1)
    make = _maker(loader)
    make([next(batches)])  # what is made only once
    began_s = now_s()
    samples: list[Any] = []
    while len(samples) < MAX_SAMPLES and (not samples or now_s() - began_s < limit_s / 2):
        samples += make([next(batches)])
    made_s = (now_s() - began_s) / len(samples)
    collate = loader.collate_fn if loader._auto_collation else None
    collate_s, nbytes = 0.0, 0.0
    if collate is not None:
        some = samples[:size]
        collate(list(some))
        began_s = now_s()
        batch = collate(list(some))
        collate_s = (now_s() - began_s) / len(some)
        nbytes = _nbytes(batch) / len(some)
    else:
        nbytes = sum(map(_nbytes, samples)) / len(samples)
    sample_s = made_s + collate_s
    profiled_s, found = _profiled(make, batches, len(samples), limit_s / 2)
    functions = {name: made_s * seconds / profiled_s for name, seconds in found.items()}
    if collate_s:
        functions["collate"] = collate_s
    ranked = sorted(functions.items(), key=lambda each: -each[1])
    return {
        "sample_s": sample_s,
        "collate_s": collate_s,
        "nbytes": int(nbytes),
        "functions": ranked,
        "why": "",
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
    if not hasattr(type(dataset), "__getitem__"):
        iterator = iter(dataset)
        return lambda indices: [next(iterator) for _ in indices]
    if hasattr(dataset, "__getitems__") and dataset.__getitems__:
        return lambda indices: list(dataset.__getitems__(indices))
    return lambda indices: [dataset[index] for index in indices]


def _index_lists(loader: Any) -> Iterator[Any]:
    """Return indices one by one, as the loader's sampler draws them, again and again."""
    if not hasattr(type(loader.dataset), "__getitem__"):
        return itertools.repeat(None)
    sampler = loader._index_sampler
    drawn = (index for _ in itertools.count() for index in sampler)
    if loader._auto_collation:
        return (index for indices in drawn for index in indices)
    return drawn


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


def _data_rate(loader: Any, settings: Settings, run: exam.Run) -> dict[str, Any]:
    """Iterate the loader under stoker as fast as it goes."""
    run.begin(settings)
    kept = loader.__dict__.get("_iterator")  # it would end the script's workers
    loader._iterator = None
    size = getattr(loader, "batch_size", None) or 1
    enough = 2 * max(loader.num_workers, run.cores()) + 1
    began_s, first_s, took_s = now_s(), 0.0, 0.0
    num = num_batches = 0
    for _ in range(MAX_EPOCHS):
        iterator = iter(loader)
        next(iterator)
        last_s = now_s()
        first_s = first_s or last_s - began_s
        for batch in iterator:
            before_s, last_s = last_s, now_s()
            took_s += last_s - before_s
            num += num_samples(batch, size)
            num_batches += 1
            if took_s > (RATE_S if num_batches >= enough else 3 * RATE_S):
                break
        else:
            continue
        break
    record = run.recorder()._loaders[-1]
    del kept
    if not record.offloaded:
        return {"why": record.reasons[0]}
    places = run.recorder().fast() or ()
    fast = [asdict(Way(each.place, each.num_made, each.num_refused, each.why)) for each in places]
    return {"num_workers": record.chains, "rate": num / took_s, "first_s": first_s, "fast": fast}


def _remembered(loader: Any, settings: Settings, run: exam.Run, num: int) -> dict[str, Any]:
    """Iterate some samples of the loader under stoker, until they are served from memory."""
    from torch.utils.data import DataLoader, Subset

    run.begin(settings)
    size = max(1, min(getattr(loader, "batch_size", None) or 1, num // 4))
    small: Any = DataLoader(
        Subset(loader.dataset, range(num)), size, shuffle=True, num_workers=loader.num_workers,
        collate_fn=loader.collate_fn, worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context if loader.num_workers else None,
        persistent_workers=loader.num_workers > 0,
    )  # fmt: skip
    rates = []
    for _ in range(NUM_EPOCHS):
        began_s = now_s()
        for _ in small:
            pass
        rates.append(num / (now_s() - began_s))
        found = run.remembered()
        places = [] if found is None else found.places
        if all(place.phase == "off" for place in places):
            break
    if found is None or not places:
        raise RuntimeError("no sample was looked at")
    place = max(places, key=lambda each: (each.num_hits, each.num_samples))
    nbytes = place.stored_nbytes / max(1, place.num_stored)
    told = Kept(place.place, place.phase, place.depth, place.why, nbytes, found.budget_nbytes)
    return {"kept": asdict(told), "rate": max(rates[-3:])}
