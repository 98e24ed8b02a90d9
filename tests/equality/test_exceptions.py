"""What goes wrong in dataset code arrives as from torch: same type, same text, same moment.

Compared are the type, the first and last lines of the text, and the frames of this file in between:
the frames of the machinery that called the dataset are each side's own.
"""

import contextlib
import gc
import io
import os
import re
import threading
import warnings

import PIL.Image
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from tests.conftest import descendants, settle
from tests.equality.cases import Samples
from tests.equality.sides import both, installed


class TwoArgumentsError(Exception):
    def __init__(self, first, second):
        super().__init__(first, second)


class KeywordMessageError(Exception):
    message = "a field, as some libraries have"

    def __init__(self, message="none"):
        super().__init__(message)


class UnpicklableError(Exception):
    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()


class Raises(Dataset):
    """The fifth sample calls `trouble`."""

    def __init__(self, trouble, num_samples=12):
        self.trouble, self.num_samples = trouble, num_samples

    def __len__(self):
        return self.num_samples

    def __getitem__(self, index):
        return self.trouble() if index == 5 else torch.tensor([index, 1.0])


def throw(error):
    raise error


def throw_from():
    try:
        {}["missing"]
    except KeyError as error:
        raise ValueError("bad\nsample") from error


def throw_group():
    raise ExceptionGroup("two", [ValueError(1), TypeError(2)])


def corrupt_jpeg():
    file = io.BytesIO()
    PIL.Image.effect_noise((64, 64), 50).convert("RGB").save(file, "JPEG")
    truncated = io.BytesIO(file.getvalue()[:400])
    return torch.tensor(list(PIL.Image.open(truncated).convert("RGB").tobytes()))


TROUBLES = {
    "ValueError": lambda: throw(ValueError("bad sample")),
    "KeyError": lambda: {}["missing key"],
    "IndexError": lambda: [][7],
    "StopIteration": lambda: next(iter([])),
    "AssertionError": lambda: throw(AssertionError()),
    "OSError": lambda: open("/does/not/exist"),  # noqa: SIM115, PTH123
    "UnicodeDecodeError": lambda: b"\xff".decode(),
    "ZeroDivisionError": lambda: 1 / 0,
    "MemoryError": lambda: throw(MemoryError("too much")),
    "RecursionError": lambda: (lambda f: f(f))(lambda f: f(f)),
    "torch error": lambda: torch.ones(2) @ torch.ones(3),
    "TimeoutError": lambda: throw(TimeoutError("slow disk")),
    "ConnectionResetError": lambda: throw(ConnectionResetError("lost")),
    "EOFError": lambda: throw(EOFError()),
    "two arguments": lambda: throw(TwoArgumentsError(1, 2)),
    "message keyword": lambda: throw(KeywordMessageError("text")),
    "unpicklable": lambda: throw(UnpicklableError("text")),
    "cause": throw_from,
    "group": throw_group,
    "None": lambda: None,
    "other shape": lambda: torch.zeros(3),
    "other type": lambda: "text",
    "corrupt JPEG": corrupt_jpeg,
    "bad image": lambda: PIL.Image.open(io.BytesIO(b"not an image")),
}


def told(error: BaseException) -> tuple[str, str, list[str]]:
    """Type, and of the text what does not depend on who called the dataset."""
    lines = re.sub(r"0x[0-9a-f]+|\bpid \d+", "#", str(error)).splitlines()
    frames = [line for line in lines if __file__ in line]
    kept = [re.sub(r"[\s|+-]+", " ", line) for line in lines[:1] + lines[-1:]]
    return type(error).__qualname__, repr(kept), frames


def until_the_end(loader):
    """All batches, and what was raised in between: iteration goes on after an error."""
    for _ in range(2):
        iterator = iter(loader)
        for _ in range(len(loader) + 1):
            try:
                yield next(iterator)
            except StopIteration:
                yield "end"
            except Exception as error:
                yield told(error)
        if not loader.persistent_workers:
            iterator._shutdown_workers()  # torch takes 5 s a worker if the collector has to
    iterator._shutdown_workers()


@pytest.mark.few(12)
@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES)
def test_an_error_in_a_sample_arrives_as_itself(trouble):
    both(lambda w: DataLoader(Raises(trouble), 2, num_workers=w), until_the_end)


@pytest.mark.cover(1)
@pytest.mark.away_by_default
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("batch_size", [None, 3])
def test_iteration_goes_on_after_an_error(persistent, batch_size):
    def make(num_workers):
        return DataLoader(
            Raises(TROUBLES["ValueError"]), batch_size, shuffle=True, num_workers=num_workers,
            persistent_workers=persistent,
        )  # fmt: skip

    both(make, until_the_end, workers=3)


def test_randomness_after_an_error_is_that_of_torch():
    class Draws(Samples):
        def __getitem__(self, index):
            sample = super().__getitem__(index)
            return throw(ValueError(index)) if index % 4 == 1 else sample

    both(lambda w: DataLoader(Draws(21, "all"), 2, num_workers=w), until_the_end)


def test_an_error_in_the_collate_function():
    def collate(samples):
        return throw(ValueError("collate")) if 0 in samples else default_collate(samples)

    both(lambda w: DataLoader(list(range(9)), 2, num_workers=w, collate_fn=collate), until_the_end)


@pytest.mark.cover(1)
@pytest.mark.parametrize("bad_worker", [0, 1, None])
@pytest.mark.parametrize("persistent", [False, True])
def test_an_error_in_worker_init_fn(bad_worker, persistent):
    def init(worker_id):
        if bad_worker in (None, worker_id):
            raise ValueError(f"no start for {worker_id}")

    def run(loader):
        iterator = iter(loader)
        for _ in range(2):
            try:
                yield next(iterator)
            except ValueError as error:
                yield told(error)
        iterator._shutdown_workers()

    def make(num_workers):
        return DataLoader(
            torch.arange(8), 2, num_workers=num_workers, worker_init_fn=init,
            persistent_workers=persistent,
        )  # fmt: skip

    both(make, run)


def test_a_length_that_lies():
    class Lies(Dataset):
        items = tuple(range(8))

        def __len__(self):
            return 12

        def __getitem__(self, index):
            return self.items[index]

    both(lambda w: DataLoader(Lies(), 3, num_workers=w), until_the_end)


class BreaksAfter:
    """A sampler that raises after so many indices."""

    def __init__(self, num_indices):
        self.num_indices = num_indices

    def __iter__(self):
        yield from range(self.num_indices)
        raise LookupError("sampler")

    def __len__(self):
        return 40


@pytest.mark.parametrize("num_indices", [1, 8, 30])
def test_an_error_in_the_sampler_is_raised_where_torch_draws_the_index(num_indices):
    def make(num_workers):
        samplers = (None, BreaksAfter(num_indices))
        return [
            DataLoader(list(range(40)), 2, sampler=s, num_workers=num_workers) for s in samplers
        ]

    def run(loaders):
        try:
            for loader in loaders:
                yield from loader
        except LookupError as error:
            yield str(error)
        gc.collect()

    both(make, run)


def test_a_sampler_of_indices_out_of_range():
    both(
        lambda w: DataLoader(list(range(4)), 2, sampler=[0, 1, 9, 2, 3], num_workers=w),
        until_the_end,
    )


@pytest.mark.parametrize("what", ["_thread.lock", "generator"])
def test_a_batch_that_cannot_be_pickled_says_so(what):
    """Under torch the worker's queue thread prints the error and the trainer waits for ever."""
    make = {"_thread.lock": lambda s: threading.Lock(), "generator": lambda s: (x for x in s)}[what]
    loader = DataLoader(list(range(4)), 2, num_workers=1, collate_fn=make)
    with installed(), pytest.raises(TypeError, match=f"cannot pickle '{re.escape(what)}'"):
        next(iter(loader))


class Hangs(Dataset):
    """Sample 3 waits for what never comes."""

    def __init__(self, pipe):
        self.pipe = pipe

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 3:
            os.read(self.pipe[0], 1)
        return index


@pytest.fixture
def silent_pipe():
    pipe = os.pipe()
    yield pipe
    for fd in pipe:
        os.close(fd)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_sample_that_hangs_past_the_timeout(silent_pipe, persistent):
    def run(loader):
        iterator = iter(loader)
        yield next(iterator)
        with pytest.raises(RuntimeError) as caught:
            next(iterator)
        yield str(caught.value)
        for worker in iterator._workers:
            worker.terminate()
            worker.join(10)

    def make(num_workers):
        return DataLoader(
            Hangs(silent_pipe), 2, num_workers=num_workers, timeout=0.6,
            persistent_workers=persistent, multiprocessing_context="fork",  # for its descriptor
        )  # fmt: skip

    both(make, run)


def test_the_text_names_the_worker_and_notes_name_the_samples():
    loader = DataLoader(Raises(TROUBLES["ValueError"]), 4, num_workers=2)
    with installed(), pytest.raises(ValueError) as caught:
        list(loader)
    text = str(caught.value)
    assert text.startswith("Caught ValueError in DataLoader worker process 1.\nOriginal Traceback")
    assert "bad sample" in text
    notes = "\n".join(getattr(caught.value, "__notes__", []))
    assert all(str(index) in notes for index in (4, 5, 6, 7)), notes


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_is_no_exception_ends_the_worker_as_under_torch(error):
    """The worker ends without an answer; the trainer is told that it has."""
    loader = DataLoader(Raises(lambda: throw(error(3))), 2, num_workers=1)
    with installed(), pytest.raises(RuntimeError, match=r"DataLoader worker \(pid"):
        list(loader)


@pytest.mark.parametrize("persistent", [False, True])
def test_what_an_error_kept_alive_is_collected_without_a_word_or_a_leftover(persistent):
    """torch's errors hold their iterator in a cycle; the collector must end it as well."""
    dataset = Raises(TROUBLES["ValueError"])
    loader = DataLoader(dataset, 2, num_workers=2, persistent_workers=persistent)
    with installed():
        before = descendants()
        with contextlib.suppress(ValueError):
            list(loader)
        del loader
        with warnings.catch_warnings(record=True, action="always") as caught:
            gc.collect()
        settle(before)
        assert [str(w.message) for w in caught] == []
        assert descendants() == before
