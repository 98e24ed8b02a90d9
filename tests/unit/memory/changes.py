"""A dataset's module, and rules that change one thing of it, of its data or of a setting. Not a test
module: see impure.py."""

import decimal
import io
import os
import random
import sys
import tokenize
from pathlib import Path

import numpy as np
import torch

NUM = 24  # samples, of which every eighth shows all that decides it
SOURCE = """import decimal
import math
import sys
from os import environ, getcwd, path

import numpy as np
import torch

SCALE = 3
TABLE = {"a": 2, "b": 5, "c": (7, 1.5)}
NAMES = ["one", "two", "three"]


def norm(x, mean=1.0, std=2.0, *more):
    return (x - mean) / std + len(more)


def weigh(x, *, low=1, high=400):
    return min(max(x, low), high) * SCALE


class Step:
    factor = 2

    def __init__(self, add):
        self.add = add

    def __call__(self, x):
        return x * self.factor + self.add


class Half(Step):
    factor = 0.5

    @property
    def shift(self):
        return self.add - 1

    @staticmethod
    def flip(x):
        return 8 - x

    @classmethod
    def named(cls, x):
        return x + len(cls.__name__)


class Number(int):
    def twice(self):
        return self * 2 + 1


def made(power):
    def inner(x):
        return x**power + 1

    return inner


square = made(2)


def work(number):
    total = 0
    for k in range(3000):
        total = (total * 31 + number + k) % 1000003
    return total


def told_by_settings():
    texts = [
        str(torch.ones(1).dtype), str(np.array([1 / 3, 2e9])), repr(torch.tensor([1 / 3])),
        str(decimal.Decimal(1) / 3), environ.get("CHANGING", "no"), str(len(sys.argv)),
        str(sorted(np.geterr().items())), getcwd(),
        str(float(torch.tensor([1e-310], dtype=torch.float64) * 1)),
        str(torch.is_grad_enabled()), str(torch.get_num_threads()),
    ]
    return sum(sum(map(ord, text)) for text in texts)


class Data:
    def __init__(self, folder):
        self.folder = folder
        self.items = [k * 3 % 7 for k in range(24)]
        self.steps = [Step(1), Half(2)]
        self.limits = {"low": 0, "high": 900, "deep": [1, [2, {"x": 3}]]}
        self.array = np.arange(12.0)
        self.tensor = torch.arange(12.0, dtype=torch.float64)
        self.number = Number(3)
        self.label = "label"

    def __len__(self):
        return 24

    def load(self, i):
        with open(path.join(self.folder, f"{i % 8}.bin"), "rb") as file:
            return sum((k + 1) * byte for k, byte in enumerate(file.read()))

    def __getitem__(self, i):
        shown = [float(work(i))]
        x = self.items[i] + self.load(i) * 1e-3
        for step in self.steps:
            x = step(x)
        y = norm(x, std=4.0) + weigh(x, high=self.limits["high"]) + square(x)
        z = self.steps[1].shift + Half.flip(x) + Half.named(y) + self.number.twice()
        found = [x, y, z, len(NAMES[i % 3]) * TABLE["b"], sum(TABLE["c"]), math.floor(y)]
        found += [float(self.array[i % 12]), float(self.tensor[i % 12]), len(self.label)]
        found += [self.limits["deep"][1][1]["x"], (lambda v, w=3: v * w)(x)]
        found += [v for v in self.items if v > 2 and v != i or v == 1]
        found.append(told_by_settings())
        if i % 8 == 5:
            shown += map(float, found)
        return torch.tensor(shown, dtype=torch.float64)
"""


def changed_token(rng, source):
    """The source with one token changed: a number, an operator, a name, a text."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    start = next(k for k, each in enumerate(tokens) if each.string == "SCALE")
    names = sorted(
        {t.string for t in tokens[start:] if t.type == tokenize.NAME and len(t.string) < 7}
    )
    while True:
        token = tokens[rng.randrange(start, len(tokens))]
        text = token.string
        if token.type == tokenize.NUMBER:
            new = rng.choice([f"({text} + 1)", f"{text}.0" if text.isdecimal() else "7", "2"])
        elif token.type == tokenize.OP and text in _OTHER:
            new = rng.choice(_OTHER[text])
        elif token.type == tokenize.NAME and text in names:
            new = rng.choice([*_OTHER.get(text, ()), rng.choice(names)])
        elif token.type == tokenize.STRING and not text.startswith("f"):
            new = text[:-1] + "s" + text[-1]
        else:
            continue
        lines = source.splitlines(keepends=True)
        (row, at), (_, end) = token.start, token.end
        line = lines[row - 1]
        lines[row - 1] = line[:at] + new + line[end:]
        try:
            compile("".join(lines), "changed", "exec")
        except SyntaxError:
            continue
        return "".join(lines)


_OTHER = {
    "+": ["-", "*"], "-": ["+"], "*": ["+", "-"], "/": ["*"], "**": ["*"], "%": ["+"], ">": ["<", ">="],
    "!=": ["=="], "==": ["!="], "and": ["or"], "or": ["and"], "min": ["max"], "max": ["min"], "mean": ["std"],
    "std": ["mean"], "low": ["high"], "high": ["low"], "Step": ["Half"], "property": ["staticmethod"],
}  # fmt: skip


def change_attribute(rng, module, data):
    """Change one thing that the dataset or its module holds."""

    def nested():
        data.limits["deep"][1][1]["x"] += 1

    def method():
        module.Step.__call__ = lambda self, x: x - self.add

    def default():
        module.norm.__kwdefaults__, module.norm.__defaults__ = None, (1.0, 5.0)

    def closure():
        module.square.__closure__[0].cell_contents = 3

    rng.choice([
        lambda: setattr(data, "label", data.label + "s"), lambda: data.items.__setitem__(5, 6),
        lambda: data.items.append(9), lambda: setattr(data.steps[0], "add", 4), nested, method, default,
        closure, lambda: data.steps.reverse(), lambda: data.array.__setitem__(1, 99.0),
        lambda: data.tensor.__setitem__(1, 99.0), lambda: setattr(module, "SCALE", 5),
        lambda: module.TABLE.update(b=6), lambda: module.NAMES.__setitem__(1, "twenty"),
        lambda: setattr(module.Half, "factor", 0.25), lambda: setattr(data, "number", module.Number(4)),
        lambda: setattr(data, "load", lambda i: i), lambda: setattr(module, "weigh", lambda x, high: x),
        lambda: setattr(data.steps[1], "factor", 3), lambda: setattr(module.Number, "twice", lambda self: 1),
        lambda: setattr(data, "limits", {**data.limits, "high": 1}),
        lambda: setattr(module.Half, "shift", property(lambda self: 3)),
        lambda: setattr(module.Half, "flip", staticmethod(lambda x: x)),
        lambda: setattr(module.math, "floor", lambda x: 1), lambda: setattr(data, "steps", data.steps[:1]),
        lambda: setattr(data, "__class__", type("Data", (module.Data,), {"load": lambda self, i: 2})),
    ])()  # fmt: skip


def change_file(rng, folder):
    """Change a byte of one file, and put back its time of change now and then."""
    path = folder / f"{rng.choice([5, 5, 5, 0])}.bin"
    before, content = path.stat(), bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    how = rng.randrange(3)
    if how == 0:
        path.unlink()
    path.write_bytes(content + b"x" * (how == 1))
    if rng.random() < 0.5:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def change_setting(rng, folder):
    """Change a setting; returns what sets it back."""
    threads, context, here = torch.get_num_threads(), decimal.getcontext().prec, Path.cwd()
    errors, prints, argv = np.geterr(), np.get_printoptions(), list(sys.argv)
    rng.choice([
        lambda: torch.set_default_dtype(torch.float64), lambda: np.set_printoptions(precision=3),
        lambda: torch.set_printoptions(precision=2), lambda: setattr(decimal.getcontext(), "prec", 9),
        lambda: os.environ.__setitem__("CHANGING", "yes"), lambda: sys.argv.append("more"),
        lambda: np.seterr(over="ignore", under="ignore", divide="ignore"), lambda: os.chdir(folder),
        lambda: torch.set_flush_denormal(True), lambda: torch.set_grad_enabled(False),
        lambda: torch.set_num_threads(threads + 1), lambda: np.set_printoptions(suppress=True),
        lambda: setattr(decimal.getcontext(), "rounding", decimal.ROUND_UP),
    ])()  # fmt: skip

    def restore():
        torch.set_default_dtype(torch.float32)
        torch.set_printoptions(profile="default")
        torch.set_flush_denormal(False)
        torch.set_grad_enabled(True)
        torch.set_num_threads(threads)
        np.set_printoptions(**prints)
        np.seterr(**errors)
        os.environ.pop("CHANGING", None)
        os.chdir(here)
        sys.argv[:] = argv
        decimal.getcontext().prec, decimal.getcontext().rounding = context, decimal.ROUND_HALF_EVEN

    return restore


def write_files(folder):
    rng = random.Random(5)
    for k in range(8):
        path = folder / f"{k}.bin"
        path.write_bytes(rng.randbytes(40))
        os.utime(path, (1e9, 1e9))
