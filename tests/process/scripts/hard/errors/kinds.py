"""Exceptions of samples that are hard to raise again: required arguments, unpicklable, strange str."""

import subprocess
import threading

from torch.utils.data import DataLoader, Dataset


class Required(Exception):
    def __init__(self, path, line):
        super().__init__(f"{path}:{line}")
        self.path, self.line = path, line


class Unpicklable(Exception):
    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()


class BadText(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    def __repr__(self):
        return "BadText"


class Keyed(KeyError):
    message = "a class attribute"


RAISED = [
    Required("a.py", 3), Unpicklable("lock"), Keyed("key"), KeyError("key\nwith lines"), OSError(2, "No", "f"),
    AssertionError(), IndexError("i"), UnicodeDecodeError("utf8", b"x", 0, 1, "why"), MemoryError("m"),
    subprocess.CalledProcessError(3, ["cmd"]), ExceptionGroup("many", [ValueError(1), TypeError(2)]), StopAsyncIteration(),
    RecursionError("deep"), ImportError("no", name="x"), RuntimeError(), NotImplementedError, LookupError, EOFError("e"),
    ConnectionError("c"), TimeoutError("t"), BufferError("b"), FloatingPointError("f"), ArithmeticError("a", "b"),
]  # fmt: skip


class Raises(Dataset):
    def __len__(self):
        return len(RAISED)

    def __getitem__(self, index):
        raise RAISED[index]


for workers in (0, 1):
    iterator = iter(DataLoader(Raises(), None, num_workers=workers))
    for expected in RAISED:
        try:
            next(iterator)
        except Exception as error:
            text = str(error).strip().splitlines() or [""]
            print(type(error).__name__, error.args[1:], text[0], "|", text[-1])
