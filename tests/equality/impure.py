"""Datasets whose samples depend on more than their index, each in its own way, and some that seem to.

Beside each stands what is to become of it: KEPT, or the words in which it is left alone. Those of
VOLATILE give other samples in every run under torch too: of them only that they are left alone can
be tested. Not a test module: pytest rewrites those, and what is rewritten cannot be split.
"""

import functools
import importlib
import multiprocessing
import os
import random
import sys
import threading
import time
import uuid
import weakref
from pathlib import Path

import h5py
import markupsafe._speedups
import numpy as np
import pandas
import polars
import torch
from PIL import Image
from torch.utils.data import Dataset
from torchvision.io import read_file

from tests.equality import impure_helpers

NUM = 48
KEPT = "kept"


def work(number):
    """About half a millisecond that depends on a number alone."""
    total = 0
    for k in range(6000):
        total = (total * 31 + number + k) % 1000003
    return total


def hard_work(number):
    return float(sum(work(number + k) for k in range(8)))


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


class Base(Dataset):
    forks = False  # whether its workers are to be forks, whatever the start method

    def __init__(self, folder):
        self.folder = str(folder)
        self.paths = [str(folder / f"{k}.txt") for k in range(NUM)]

    def __len__(self):
        return NUM


class Pure(Base):
    becomes = KEPT

    def __getitem__(self, i):
        return numbers(i, work(i))


class OfAFile(Base):
    becomes = KEPT

    def __getitem__(self, i):
        text = Path(self.paths[i]).read_text()
        return numbers(i, work(len(text)) + sum(map(ord, text)))


MIDDLE = 1 << 18  # far from both ends


class OfAFileBesides(Base):
    """The last samples are of one file more, which changes without a trace in those that are seen."""

    def __init__(self, folder):
        super().__init__(folder)
        self.besides = str(folder / "besides")
        Path(self.besides).write_bytes(bytes(2 * MIDDLE))
        self.held = self.opened()

    def opened(self):
        return None

    def __getitem__(self, i):
        own = len(Path(self.paths[i]).read_text())
        return numbers(own, work(i), self.read() if i >= NUM - 6 else 0)


class ByDescriptor(OfAFileBesides):
    forks = True  # a number that is pickled is no open file

    def opened(self):
        fd = os.open(self.besides, os.O_RDONLY)
        weakref.finalize(self, os.close, fd)
        return fd

    def read(self):
        return os.pread(self.held, 1, MIDDLE)[0]


class ByMapping(OfAFileBesides):
    def opened(self):
        return np.memmap(self.besides, np.uint8, "r")

    def read(self):
        return int(self.held[MIDDLE])


class ByReaderOfAnotherName(OfAFileBesides):
    def read(self):
        return int(read_file(self.besides)[MIDDLE])


class ByHdf5(OfAFileBesides):
    """Opened by each worker, as most do."""

    def opened(self):
        with h5py.File(self.besides, "w") as file:
            values = file.create_dataset("values", data=np.zeros(2 * MIDDLE, np.uint8))
            self.number = MIDDLE - values.id.get_offset()

    def read(self):
        if self.held is None:
            self.held = h5py.File(self.besides)
        return int(self.held["values"][self.number])


BESIDES = ByDescriptor, ByMapping, ByReaderOfAnotherName, ByHdf5


class ImportsWhatTellsTheEnvironment(Base):
    becomes = KEPT

    def __getitem__(self, i):
        from tests.equality import impure_import  # in each worker anew

        return numbers(i, work(i) + impure_import.told(i))


class CountsAndImports(Base):
    """While it is learnt from, each of its samples imports something."""

    becomes = "finds what nobody can see"

    def __init__(self, folder):
        super().__init__(folder)
        self.seen = 0

    def __getitem__(self, i):
        self.seen += 1
        if self.seen <= 14:
            sys.modules[f"imported_{self.seen}"] = sys.modules[__name__]
        return numbers(i, work(i))


class RunsAModuleAgain(Base):
    becomes = "finds what nobody can see"

    def __getitem__(self, i):
        from tests.equality import impure_import

        os.environ.pop("A_LIBRARY_FOR_TESTS", None)
        importlib.reload(impure_import)
        return numbers(i, work(i))


class ByWorker(Base):
    becomes = "calls get_worker_info"

    def __getitem__(self, i):
        return numbers(i, work(i) + torch.utils.data.get_worker_info().id)


class ByProcess(Base):
    """Its name ends in a number that counts the processes of a run."""

    becomes = "calls current_process"

    def __getitem__(self, i):
        return numbers(i, work(i) + len(multiprocessing.current_process().name) // 1000)


class LargeInPlace(Base):
    """The second half writes all over what it is given; that is mapped, not copied."""

    becomes = KEPT

    def __getitem__(self, i):
        volume = torch.arange(300_000.0) + hard_work(i)  # not few values, which take less memory
        volume += random.random()
        volume[::7] = 3.0
        return volume[: 1 << 10].clone()


class LargeArrayInPlace(Base):
    becomes = KEPT

    def __getitem__(self, i):
        volume = np.arange(150_000.0) + hard_work(i)
        volume += random.random()
        return numbers(i, float(volume[5]))


class LargeImageInPlace(Base):
    becomes = KEPT

    def __getitem__(self, i):
        pixels = (np.arange(1_125_000) % 251 + hard_work(i) % 5).astype(np.uint8)
        image = Image.fromarray(pixels.reshape(500, 750, 3))
        image.putpixel((random.randrange(700), 3), (1, 2, 3))
        return numbers(i, *image.transpose(random.choice((0, 1))).tobytes()[-9000:])


class LargeResized(Base):
    """What is mapped could not grow."""

    becomes = KEPT

    def __getitem__(self, i):
        volume = torch.arange(300_000.0) + hard_work(i)
        return volume.resize_(300_008)[: 1 << 10] + random.random()


class CallsUnknownC(Base):
    becomes = "compiled code that is not known"

    def __getitem__(self, i):
        return numbers(i, work(i), len(markupsafe._speedups._escape_inner("<" * i)))


class OfManyBytes(Base):
    becomes = KEPT

    def __getitem__(self, i):
        return torch.full((16 << 10,), float(work(i)))


class OfFewBytes(Base):
    becomes = KEPT

    def __getitem__(self, i):
        return numbers(i, hard_work(i))


class ImportsInside(Base):
    """What a module has imported is used in a function inside alone."""

    becomes = KEPT

    def __getitem__(self, i):
        words = [uuid.UUID(int=number).hex for number in range(i, i + 20)]
        words.sort(key=lambda word: threading.TIMEOUT_MAX - int(word, 16))
        return numbers(work(i), len(words[0]) + random.random())


class HardThenRandom(Base):
    becomes = KEPT

    def __getitem__(self, i):
        return numbers(i, hard_work(i) + random.random())


class ThenRandom(Base):
    becomes = KEPT

    def __getitem__(self, i):
        value = work(i)
        return numbers(i, value + random.random(), np.random.rand(), torch.rand(()).item())


class ShowsMemoryThenRandom(Base):
    """Its second half tells whose memory its values show."""

    becomes = KEPT

    def __getitem__(self, i):
        value = work(i)
        x = torch.full((3, 4), value).permute(1, 0)
        part = torch.full((4, 3), value)[1:]
        array = np.full((3, 4), value).T
        draw = random.random()
        told = (
            x._is_view(),
            part.storage_offset(),
            part.untyped_storage().nbytes(),
            array.base is None,
        )
        return numbers(i, draw, value, x.sum(), *told)


class Scaled(Base):
    becomes = KEPT

    def __init__(self, folder):
        super().__init__(folder)
        self.scale = 1.0

    def __getitem__(self, i):
        value = work(i) * self.scale
        return numbers(i, value, random.random())


class RandomFirst(Base):
    becomes = "at its very first step"

    def __getitem__(self, i):
        return numbers(random.random() + work(i))


class OneLine(Base):
    becomes = KEPT
    note = ""

    def __getitem__(self, i):
        return work(work(i) % 100 + len(str(self.note))) + random.random()


class ImportsLate(Base):
    """Each worker's first sample imports what nobody has, and so reads files of its own."""

    becomes = KEPT

    def __getitem__(self, i):
        import modulefinder

        value = work(i) + len(modulefinder.__name__)
        return numbers(i, value + random.random())


class InALoop(Base):
    becomes = KEPT

    def __getitem__(self, i):
        value = work(i)
        for _ in range(3):
            value += random.random()
        return numbers(value)


class NumpyGauss(Base):
    becomes = KEPT

    def __getitem__(self, i):
        value = work(i)
        return numbers(value, np.random.randn())


class TorchGauss(Base):
    becomes = KEPT

    def __getitem__(self, i):
        value = work(i)
        return numbers(value, float(torch.randn(())))


class Add:
    def __init__(self, number):
        self.number = number

    def __call__(self, value):
        return value + work(self.number)


class AddRandom(Add):
    def __call__(self, value):
        return value + random.random()


class AddAndNote(Add):
    """Writes to itself: whether each call writes it anew nobody can tell."""

    def __call__(self, value):
        self.number = random.random()
        return value + self.number


class NotesBehindTheDraw(Base):
    becomes = "cannot be made twice"

    def __init__(self, folder):
        super().__init__(folder)
        self.augment = AddAndNote(3)

    def __getitem__(self, i):
        return numbers(work(i), self.augment(random.random()))


class PrintsBehindTheDraw(Base):
    becomes = "cannot be made twice"

    def __getitem__(self, i):
        value = work(i)
        if random.random() > 2:
            return value
        print(end="")
        return numbers(value)


class HeadOfACompose(Base):
    becomes = KEPT

    def __init__(self, folder):
        super().__init__(folder)
        from torchvision import transforms  # not above: it imports Triton, whose tests set it up

        self.transform = transforms.Compose([Add(1), Add(2), AddRandom(3), Add(4)])

    def __getitem__(self, i):
        return self.transform(torch.tensor([float(work(i))])), i


class HeadInABranch(HeadOfACompose):
    becomes = KEPT

    def __getitem__(self, i):
        value = torch.tensor([float(work(i))])
        if self.transform is not None:
            value = self.transform(value)
        return value, i


class HeadOfASequential(Base):
    becomes = KEPT

    def __init__(self, folder):
        super().__init__(folder)
        self.transform = torch.nn.Sequential(torch.nn.Softplus(), torch.nn.Dropout())

    def __getitem__(self, i):
        return self.transform(torch.tensor([float(work(i))])), i


class HeadOfASecondCompose(Base):
    becomes = KEPT

    def __init__(self, folder):
        super().__init__(folder)
        from torchvision.transforms import v2

        self.first = v2.Compose([Add(1), Add(2)])
        self.second = v2.Compose([Add(3), AddRandom(4)])

    def __getitem__(self, i):
        return self.second(self.first(torch.tensor([float(work(i))])))


class Seldom(Base):
    """Draws for some indices only, and those come late."""

    becomes = KEPT

    def __getitem__(self, i):
        value = work(i)
        return numbers(value, random.random() if i % 7 == 3 else 0)


class Counter(Base):
    becomes = "changes something"

    def __init__(self, folder):
        super().__init__(folder)
        self.count = 0

    def __getitem__(self, i):
        self.count += 1
        return numbers(i, work(i) + self.count)


CALLS = [0]


class GlobalCounter(Base):
    becomes = "changes something"

    def __getitem__(self, i):
        CALLS[0] += 1
        return numbers(i, work(i) + CALLS[0])


class LastSample(Base):
    becomes = "changes something"

    def __init__(self, folder):
        super().__init__(folder)
        self.last = 0

    def __getitem__(self, i):
        before, self.last = self.last, i
        return numbers(i, work(i) + before)


class WritesOnly(Base):
    """Nothing reads what it writes, but the collate function or the script may."""

    becomes = "changes something"

    def __init__(self, folder):
        super().__init__(folder)
        self.seen = []

    def __getitem__(self, i):
        self.seen.append(i)
        return numbers(i, work(i))


class OwnCache(Base):
    becomes = "changes something"

    def __init__(self, folder):
        super().__init__(folder)
        self.kept = {}

    def __getitem__(self, i):
        if i not in self.kept:
            self.kept[i] = numbers(i, work(i))
        return self.kept[i]


class Time(Base):
    becomes = "calls time.time"

    def __getitem__(self, i):
        return numbers(work(i), time.time())


class Monotonic(Base):
    becomes = "calls time.perf_counter"

    def __getitem__(self, i):
        return numbers(work(i), time.perf_counter())


class Urandom(Base):
    becomes = "calls posix.urandom"

    def __getitem__(self, i):
        return numbers(work(i), int.from_bytes(os.urandom(4), "big"))


class FreshGenerator(Base):
    becomes = "getrandbits"

    def __getitem__(self, i):
        return numbers(work(i), np.random.default_rng().random())


class FreshRandom(Base):
    becomes = "Random.__init__"

    def __getitem__(self, i):
        return numbers(work(i), random.Random().random())


class FreshTorch(Base):
    becomes = "seed"

    def __getitem__(self, i):
        generator = torch.Generator()
        generator.seed()
        return numbers(work(i), torch.rand((), generator=generator).item())


class Uuid(Base):
    becomes = "calls"

    def __getitem__(self, i):
        return numbers(work(i), uuid.uuid4().int % 1000)


class Pid(Base):
    becomes = "calls posix.getpid"

    def __getitem__(self, i):
        return numbers(work(i), os.getpid())


class Address(Base):
    becomes = "calls builtins.id"

    def __getitem__(self, i):
        return numbers(work(i), id(object()))


class SeededByIndex(Base):
    """A generator that depends on the index alone is as good as none."""

    becomes = KEPT

    def __getitem__(self, i):
        return numbers(work(i), np.random.default_rng(i).random(), random.Random(i).random())


class Reseeds(Base):
    # Where the generator stands there already, nothing shows but the call.
    becomes = "at its very first step or calls Random.seed"

    def __getitem__(self, i):
        random.seed(i)
        return numbers(work(i), random.random())


class ReseedsLate(Base):
    becomes = KEPT

    def __getitem__(self, i):
        value = work(i)
        random.seed(i)
        return numbers(value, random.random())


class OwnGenerator(Base):
    becomes = KEPT

    def __init__(self, folder):
        super().__init__(folder)
        self.rng = np.random.default_rng(5)

    def __getitem__(self, i):
        value = work(i)
        return numbers(value, self.rng.random())


class OwnTorchGenerator(Base):
    becomes = KEPT
    forks = True  # its pickled state may be gone before a process of the fork server asks for it

    def __init__(self, folder):
        super().__init__(folder)
        self.rng = torch.Generator().manual_seed(5)

    def __getitem__(self, i):
        value = work(i)
        return numbers(value, torch.rand((), generator=self.rng).item())


class SharedValue(Base):
    becomes = "shared memory"

    def __init__(self, folder):
        super().__init__(folder)
        self.value = multiprocessing.Value("d", 1.0)

    def __getitem__(self, i):
        return numbers(i, work(i) * self.value.value)


class SharedTensor(Base):
    becomes = KEPT

    def __init__(self, folder):
        super().__init__(folder)
        self.value = torch.ones(3).share_memory_()

    def __getitem__(self, i):
        return numbers(i, work(i) * self.value[0].item())


class LargeSharedTensor(SharedTensor):
    becomes = "other processes may change"

    def __init__(self, folder):
        super().__init__(folder)
        self.more = torch.ones(1 << 18).share_memory_()  # 1 MB, and the other


class TellsByASharedTensor(SharedTensor):
    """One sample writes what the training loop reads."""

    becomes = "changes something"

    def __init__(self, folder):
        super().__init__(folder)
        self.told = torch.zeros(NUM).share_memory_()

    def __getitem__(self, i):
        if i == 7:
            self.told[i] += 1
        return super().__getitem__(i)


class Listing(Base):
    becomes = "listdir"

    def __getitem__(self, i):
        return numbers(i, work(i) + len(os.listdir(self.folder)))


class Status(Base):
    becomes = "file's status"

    def __getitem__(self, i):
        return numbers(i, work(i) + os.stat(self.folder).st_size)


class Writes(Base):
    becomes = "write"

    def __getitem__(self, i):
        Path(self.folder, f"out{i}").write_text("seen")
        return numbers(i, work(i))


class Prints(Base):
    becomes = "calls builtins.print"

    def __getitem__(self, i):
        print(end="")
        return numbers(i, work(i))


class Threads(Base):
    becomes = "calls Thread.start"

    def __getitem__(self, i):
        found = []
        thread = threading.Thread(target=lambda: found.append(work(i)))
        thread.start()
        thread.join()
        return numbers(i, *found)


class ReadsEnvironment(Base):
    becomes = KEPT

    def __getitem__(self, i):
        return numbers(i, work(i) + float(os.environ.get("STOKER_TEST_SCALE", "1")))


class AliasOfTheDataset(Base):
    """Gives out an array of its own, to be changed in place by the second half."""

    becomes = "held elsewhere"

    def __init__(self, folder):
        super().__init__(folder)
        self.arrays = np.arange(NUM * 4.0).reshape(NUM, 4)

    def __getitem__(self, i):
        values = self.arrays[i]
        number = work(i)
        shift = random.random()
        return torch.from_numpy(values + number + shift)


class ListOfTheDataset(Base):
    becomes = "held elsewhere"

    def __init__(self, folder):
        super().__init__(folder)
        self.lists = [[float(k)] for k in range(NUM)]

    def __getitem__(self, i):
        values = self.lists[i]
        number = work(i)
        shift = random.random()
        return numbers(values[0], number, shift)


class ChangedInPlace(Base):
    """The second half changes what the first gave it."""

    becomes = KEPT

    def __getitem__(self, i):
        values = np.full(5, float(work(i)))
        values[random.randrange(5)] += 1
        values += 1
        return torch.from_numpy(values)


class TwoNamesOfOne(Base):
    becomes = KEPT  # up to where it has one name

    def __getitem__(self, i):
        values = np.full(5, float(work(i)))
        same = values
        values[0] = random.random()
        return torch.from_numpy(same + values)


class MutatedArgument(Base):
    becomes = "changes something"

    def __init__(self, folder):
        super().__init__(folder)
        self.options = {"times": 0}

    def bump(self, options):
        options["times"] += 1
        return options["times"]

    def __getitem__(self, i):
        return numbers(i, work(i) + self.bump(self.options))


class SecondHalfMoves(Base):
    """What the first half reads is changed by the second."""

    becomes = "cannot be made twice"

    def __init__(self, folder):
        super().__init__(folder)
        self.scale = 1.0

    def __getitem__(self, i):
        value = work(i) * self.scale
        self.scale = random.random()
        return numbers(i, value)


class SetOrder(Base):
    """Of strings, whose order is another in every run, and one within a run."""

    becomes = KEPT

    def __getitem__(self, i):
        order = "".join({"a", "b", "c", str(i)})
        return numbers(i, work(len(order)))


class Cached(Base):
    becomes = "nobody can see what a functools.lru_cache holds"

    @staticmethod
    @functools.lru_cache
    def made(i):
        return work(i)

    def __getitem__(self, i):
        return numbers(i, self.made(i) + work(i))


class OpenFile(Base):
    becomes = "cannot be looked into"
    forks = True  # it cannot be pickled

    def __init__(self, folder):
        super().__init__(folder)
        self.file = open(self.paths[0])

    def __del__(self):
        self.file.close()

    def __getitem__(self, i):
        self.file.seek(0)
        return numbers(i, work(i) + len(self.file.read(i)))


class Slots:
    """Not torch's Dataset, without a __dict__."""

    __slots__ = ("folder",)
    becomes = KEPT

    def __init__(self, folder):
        self.folder = str(folder)

    def __len__(self):
        return NUM

    def __getitem__(self, i):
        return numbers(i, work(i))


class OddValue(Base):
    """Nothing but what cannot be kept comes before the draw."""

    becomes = "is a tests.equality.impure.Point"

    def __getitem__(self, i):
        point = made_point(i)
        return numbers(point.x, random.random())


class OddValueLate(Base):
    """What cannot be kept stands between what is dear and the draw."""

    becomes = KEPT

    def __getitem__(self, i):
        value = work(i)
        point = Point(i, value)
        parts = (part for part in (1, 2))
        shift = random.random()
        return numbers(point.x, shift, *parts)


class OddSample(Base):
    """Draws nothing, and what it returns cannot be kept; what it is made of can."""

    becomes = KEPT

    def __getitem__(self, i):
        value = work(i)
        return Point(i, value)


class Point:
    def __init__(self, i, x):
        self.i, self.x = i, x


def made_point(i):
    return Point(i, work(i))


def as_numbers(points):
    """Collate points."""
    return numbers(*(point.x for point in points))


class Fails(Base):
    """Every eleventh sample is not there: the error is the same in every epoch."""

    becomes = KEPT

    def __getitem__(self, i):
        if i % 11 == 10:
            return numbers(-1, -1)
        return numbers(i, work(i))


class FailsLate(Base):
    """Fails behind its first draw, in a function that another line calls."""

    becomes = KEPT

    def check(self, i):
        if i % 11 == 10:
            raise LookupError(f"no sample {i}")
        return i

    def __getitem__(self, i):
        value = work(i)
        shift = random.random()
        return numbers(value, self.check(i) + shift)


# -- what draws inside a function that `__getitem__` calls ---------------------------------------------


def drawn(i, scale=1, *more, shift=0, **others):
    value = work(i) * scale + shift + sum(more)
    return numbers(i, value, random.random(), *others.values())


class InAFunction(Base):
    becomes = KEPT

    def __getitem__(self, i):
        return drawn(i)


class InAMethod(Base):
    """As MONAI's Dataset: of a slice it gives another dataset."""

    becomes = KEPT

    def __getitem__(self, i):
        if isinstance(i, slice):
            return torch.utils.data.Subset(self, range(*i.indices(len(self))))
        return self._made(i)

    def _made(self, i):
        value = work(len(self.paths[i]))
        return numbers(value, random.random())


class InAnotherModule(Base):
    becomes = KEPT

    def __getitem__(self, i):
        value = self._loaded(i)
        return numbers(*value)

    def _loaded(self, i):
        number = work(i)
        return impure_helpers.noisy(number)


class WithArguments(Base):
    becomes = KEPT

    def __init__(self, folder):
        super().__init__(folder)
        self.options = {"shift": 2, "other": 5}

    def __getitem__(self, i):
        return drawn(i, 3, i, i + 1, **self.options)


class WithDefaults(Base):
    becomes = KEPT

    def __getitem__(self, i, times=3):
        return drawn(i, shift=times)


def swapping(i):
    value = impure_helpers.chosen(i)
    impure_helpers.swap()
    return value


class Replaced(Base):
    """What it calls is another function for each sample."""

    becomes = "cannot be made twice or changes while"

    def __getitem__(self, i):
        return numbers(swapping(i))


class ReplacedOnce(Base):
    """What it calls is another function from the third epoch on."""

    becomes = KEPT

    def __getitem__(self, i):
        return numbers(impure_helpers.replaced(i))


def countdown(n, value):
    if n == 0:
        return value + random.random()
    value = work(value % 1000)
    return countdown(n - 1, value)


class Recursion(Base):
    becomes = KEPT

    def __getitem__(self, i):
        return numbers(countdown(i % 3 + 1, i))


def closed(scale):
    def scaled(i):
        value = work(i) * scale
        return numbers(value, random.random())

    return scaled


class InAClosure(Base):
    becomes = KEPT
    forks = True  # a closure is pickled by value, and then has no module of which it is

    def __init__(self, folder):
        super().__init__(folder)
        self.scaled = closed(3)

    def __getitem__(self, i):
        return self.scaled(i)


class InAProperty(Base):
    becomes = KEPT

    @property
    def scale(self):
        return work(2) + random.random()

    def __getitem__(self, i):
        value = work(i)
        return numbers(value * self.scale)


class Fresh(Base):
    """What it calls is a new object for each sample."""

    becomes = "changes while"

    @property
    def fresh(self):
        return AddLate(5)

    def __getitem__(self, i):
        return self.fresh(numbers(i))


class AddLate(Add):
    def __call__(self, value):
        return value + work(self.number) + random.random()


class InAnObject(Base):
    becomes = KEPT

    def __init__(self, folder):
        super().__init__(folder)
        self.transform = AddLate(5)

    def __getitem__(self, i):
        value = numbers(i)
        if self.transform:
            value = self.transform(value)
        return value


class OfAParent(InAMethod):
    becomes = KEPT

    def __getitem__(self, i):
        value = super().__getitem__(i)
        return value + i


class SeesItsCaller(Base):
    becomes = "calls sys._getframe"

    def __getitem__(self, i):
        return numbers(self._seen(i), random.random())

    def _seen(self, i):
        return work(i) + len(sys._getframe(1).f_code.co_name)


class SeesTheStack(Base):
    becomes = "calls inspect"

    def __getitem__(self, i):
        value = impure_helpers.named(work(i))
        return numbers(value, random.random())


class SeesTheStackLate(Base):
    becomes = KEPT

    def __getitem__(self, i):
        return numbers(*self._drawn(i))

    def _drawn(self, i):
        value = work(i)
        return value + random.random(), impure_helpers.named(i)


class WritesEarly(Base):
    becomes = "changes something"
    last = 0

    def __getitem__(self, i):
        return numbers(self._made(i))

    def _made(self, i):
        value = work(i)
        self.last = value
        return value + random.random()


class WritesLate(Base):
    becomes = "cannot be made twice"

    def __init__(self, folder):
        super().__init__(folder)
        self.last = 0

    def __getitem__(self, i):
        return numbers(self._made(i))

    def _made(self, i):
        value = work(i)
        noise = random.random()
        before, self.last = self.last, noise
        return value + noise + before


class PrintsLate(Base):
    becomes = "cannot be made twice"

    def __getitem__(self, i):
        return numbers(self._made(i))

    def _made(self, i):
        value = work(i) + random.random()
        print(end="")
        return value


class LooksUpFirst(Base):
    """What stands to the left of a call is looked up before it, and the call changes it."""

    becomes = "changes something"

    def __init__(self, folder):
        super().__init__(folder)
        self.count = 0

    def __getitem__(self, i):
        return numbers(self.count + self._bumped(i), self.noise + random.random())

    def _bumped(self, i):
        self.count += work(i)
        return self.count

    @property
    def noise(self):
        return random.random()


class LooksUpLate(Base):
    """As above, but behind the first draw."""

    becomes = "cannot be made twice"

    def __init__(self, folder):
        super().__init__(folder)
        self.count = 0

    def __getitem__(self, i):
        return numbers(work(i), self.noise + random.random(), self.count + self._bumped(i))

    def _bumped(self, i):
        self.count += i
        return self.count

    @property
    def noise(self):
        return random.random()


class OddValueInside(Base):
    """What cannot be kept stands in the function, between what is dear and the draw."""

    becomes = KEPT

    def __getitem__(self, i):
        return numbers(self._made(i))

    def _made(self, i):
        value = work(i)
        point = Point(i, value)
        shift = random.random()
        return point.x + shift


class TwoNamesInside(Base):
    becomes = KEPT

    def __getitem__(self, i):
        values = np.full(5, float(work(i)))
        changed = self._changed(values)
        return torch.from_numpy(values + changed)

    def _changed(self, values):
        same = values * 2
        values[0] = random.random()
        return same


class PassesItselfOn(Base):
    becomes = KEPT

    def __getitem__(self, i):
        return of_a_dataset(self, i)


def of_a_dataset(dataset, i):
    value = work(len(dataset.paths[i]))
    return numbers(value, random.random(), len(dataset))


class FailsInside(Base):
    """Some samples fail before their draw, in a function, and some behind it."""

    becomes = KEPT

    def __getitem__(self, i):
        value = self._checked(i)
        return numbers(value)

    def _checked(self, i):
        value = work(i)
        if i % 11 == 9:
            raise LookupError(f"early {i}")
        shift = random.random()
        if i % 11 == 10:
            raise LookupError(f"late {i}")
        return value + shift


SIZES, SCALE = [1], 1.0


class GlobalItemMoves(Base):
    """What the first half reads in a global list is changed by the second."""

    becomes = "cannot be made twice or changes while"

    def __getitem__(self, i):
        value = work(i + SIZES[0])
        SIZES[0] = random.randrange(1000)
        return numbers(i, value)


def rescale():
    global SCALE
    SCALE = random.random()


class GlobalMoves(Base):
    becomes = "cannot be made twice or changes while"

    def __getitem__(self, i):
        value = work(i) * SCALE
        rescale()
        return numbers(i, value)


class LooksWhetherThere(Base):
    """Whether a file is there tells, too: some come later (test_remembered.py)."""

    becomes = KEPT

    def __getitem__(self, i):
        there = os.path.exists(self.paths[i])
        text = Path(self.paths[i]).read_text() if there else "none"
        return numbers(i, work(len(text)) + sum(map(ord, text)))


class AsksAboutNone(Base):
    """Of what is no path, and goes on all the same."""

    becomes = "cannot be asked again"

    def __getitem__(self, i):
        try:
            there = os.path.exists(None)
        except TypeError:
            there = False
        return numbers(i, work(i) + there)


class OfATable(Base):
    """As PyTorch's tutorial on datasets has it: labels in a table of pandas."""

    becomes = KEPT

    def __init__(self, folder):
        super().__init__(folder)
        labels = [k % 7 for k in range(NUM)]
        self.labels = pandas.DataFrame({"file": self.paths, "label": labels})

    def __getitem__(self, i):
        text = Path(self.labels.iloc[i, 0]).read_text()
        return numbers(i, work(len(text)), self.labels.iloc[i, 1])


class OfATableOfPolars(Base):
    becomes = KEPT

    def __init__(self, folder):
        super().__init__(folder)
        labels = [k % 7 for k in range(NUM)]
        self.labels = polars.DataFrame({"file": self.paths, "label": labels})

    def __getitem__(self, i):
        file, label = self.labels.row(i)
        return numbers(i, work(len(Path(file).read_text())), label)


class DrawsByPolars(OfATableOfPolars):
    """Of numbers that no seed of torch's decides; two draws are often alike."""

    becomes = "of polars' own"

    def __getitem__(self, i):
        return numbers(i, work(i), self.labels["label"].head(2).sample(1)[0] * 0)


class OfATableOfArrow(OfATableOfPolars):
    becomes = KEPT

    def __init__(self, folder):
        super().__init__(folder)
        self.labels = self.labels.to_arrow()

    def __getitem__(self, i):
        file = self.labels["file"][i].as_py()
        return numbers(i, work(len(Path(file).read_text())), self.labels["label"][i].as_py())


class OfHdf5(Base):
    """Opened by each worker, as most do."""

    becomes = KEPT

    def __init__(self, folder):
        super().__init__(folder)
        self.path, self.file = str(folder / "all.h5"), None
        if not (folder / "all.h5").exists():  # else it is another file to the next run
            rows = np.arange(NUM * 64).reshape(NUM, 64)
            with h5py.File(self.path, "w") as file:
                file.create_dataset("rows", data=rows, chunks=(4, 64))

    def __getitem__(self, i):
        if self.file is None:
            self.file = h5py.File(self.path)
        return numbers(i, work(i), self.file["rows"][i].sum())


class OpensHdf5(OfHdf5):
    becomes = KEPT

    def __getitem__(self, i):
        with h5py.File(self.path) as file:
            return numbers(i, work(i), file["rows"][i].sum())


class OfVirtualHdf5(OfHdf5):
    """Whose elements lie in another file."""

    becomes = "in a way that cannot be asked again"

    def __init__(self, folder):
        super().__init__(folder)
        source = h5py.VirtualSource(self.path, "rows", shape=(NUM, 64))
        layout = h5py.VirtualLayout(shape=(NUM, 64), dtype=int)
        layout[:] = source
        self.path = str(folder / "virtual.h5")
        with h5py.File(self.path, "w") as file:
            file.create_virtual_dataset("rows", layout)


class CallsAnAttribute(Base):
    """A function that the script has given it."""

    becomes = KEPT

    def made(self, i):
        return numbers(i, hard_work(i) + random.random())

    def __getitem__(self, i):
        return self.made(i)


class OfTwo(Base):
    """Its index is a tuple, as samplers of several sizes give them."""

    becomes = KEPT

    def __getitem__(self, index):
        i, size = index if type(index) is tuple else (index, 1)
        return numbers(i, work(i) * size)


class TooCheap(Base):
    becomes = "as quickly as read"

    def __getitem__(self, i):
        return numbers(i, i)


VOLATILE = {
    Time,
    Monotonic,
    Urandom,
    FreshGenerator,
    FreshRandom,
    FreshTorch,
    Uuid,
    Pid,
    Address,
    OpenFile,
}
RAISES = {FailsLate, FailsInside}
CHANGED = {ReplacedOnce, TellsByASharedTensor}  # by the script, between epochs
COLLATED = {OddSample}
OF_ONE_RUN = {ReadsEnvironment}  # kept, but for no other run
ALL = [
    kind
    for kind in globals().values()
    if isinstance(kind, type) and "becomes" in vars(kind) and kind not in RAISES | CHANGED
]
