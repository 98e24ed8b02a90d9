"""Bodies of `__getitem__` from a grammar. Not a test module: see impure.py.

In a template E and F stand for expressions, N and M for names, B, C and L for blocks, the last one
inside a loop.
"""

import random
import re

HEAD = """
import contextlib
import random


def load(number):
    return number * 2 + 1


def draw(number=0):
    return number + random.random()


def both(one, two=0, *more, **named):
    return one + two + sum(more) + sum(named.values())


@contextlib.contextmanager
def held(value):
    yield [value]


class Data:
    def __init__(self):
        self.items, self.table, self.scale = [3, 1, 4], {"a": 2, "b": 3}, 2

    def __len__(self):
        return len(self.items)

    def get(self, number):
        return self.items[int(number) % 3] * self.scale

    def chain(self, number):
        draw(number)
        return self

"""
EXPRESSIONS = (
    "load(E)", "draw(E)", "draw(E)", "self.get(E)", "both(E, F)", "both(E, two=draw(F))",
    "both(*[E, draw(F)], named=draw(1))", "both(*(E, load(F)))", "both(E, **{'two': draw(F)})",
    "(E + F)", "(-(E))", "(E if draw(F) > 1 else load(E))", "(E and draw(F))", "(draw() < E < draw(F))",
    "self.items[int(E) % 3]", "self.table['a']", "len(self)", "len([E, *[draw(F)], E])",
    "self.chain(E).get(draw(F))", "sum(draw(N) + E for N in range(2))",
    "sum([load(N) for N in range(2) if N < draw(E)])", "len({N: E for N in range(2)})", "(N := E)",
    "max((N for N in [E, draw()]), default=0)", "float(f'{draw(N):.3f}')",
    "sorted([E, draw(F)], key=lambda each: -each)[0]", "(lambda each=E: each + i)()",
)  # fmt: skip
SIMPLE = (
    "N = E", "N = E", "N = E", "N = draw(E)", "N += E", "N: float = E", "N, M = E, F", "N, *M = [E, F]",
    "N = [E, F]\nN = N[0]", "N = {'a': E}\nN['a'] += F\nN = N['a']", "assert N is not None", "E", "del N",
    "import math\nN = math.floor(E)", "import math as m\nN = E\nN = m.floor(N)",
    "from math import floor as M\nN = E\nN = M(N)", "N = lambda: self.scale + i\nM = E\nN = N()",
    "N = [lambda: i for N in [1]]\nM = E\nN = N[0]()",
)  # fmt: skip
REFUSED = (
    "N = lambda: M\nM = E\nN = N()", "late = (draw(each) + M for each in [1, 2])\nM = E\nN = sum(late)",
    "def inner(): return M\nM = E\nN = inner()", "class Inner: held = E\nN = Inner.held",
    "N = [lambda: N for N in [1, 2]]\nM = E\nN = N[0]()", "N = len(locals())",
)  # fmt: skip
LEAVES = ("return E, F", "raise ValueError(E)")
OF_LOOPS = ("break", "continue")
COMPOUND = (
    "if E > F:\nBelse:\nC", "if E:\nBelif F < 3:\nC", "if N is not None:\nB", "for N in range(int(E) % 3):\nLelse:\nC",
    "n = 0\nwhile n < 2:\n    n += 1\nL", "with held(E) as N:\n    N = N[0]\nB",
    "try:\nBexcept NameError as error:\n    N = len(str(error))\nfinally:\n    M = F",
    "try:\nBexcept (TypeError, ValueError):\nCelse:\n    N = F",
    "match [E, F]:\n    case [0, N]:\n        M = E\n    case [N, *rest] if N > 2:\n        M = len(rest)\n    case _:\n        N = F",
)  # fmt: skip


class Grammar:
    """refuses: how often in a hundred statements one is of a form that refuses the body."""

    def __init__(self, seed, refuses=1):
        self._random, self._refuses = random.Random(seed), refuses

    def source(self):
        """A module with a class Data."""
        names = sorted({self.name() for _ in range(3)})
        body = ["a = load(i)", *self.block(0), *self.block(0), f"return i, {', '.join(names)}"]
        lines = ["    def __getitem__(self, i):", *(f"        {line}" for line in body)]
        return HEAD + "\n".join(lines) + "\n"

    def name(self):
        return self._random.choice("abcd")

    def expression(self, depth=0):
        if depth > 2 or self._random.random() < 0.4:
            return self._random.choice(["a", "b", "c", "d", "i", "0", "1", "2", "self.scale"])
        return self._filled(self._random.choice(EXPRESSIONS), depth + 1, 0, False)

    def block(self, depth, in_loop=False):
        """One to three statements, in lines."""
        lines = []
        for _ in range(self._random.randint(1, 3)):
            lines += self.statement(depth, in_loop).splitlines()
        return lines

    def statement(self, depth, in_loop):
        chance = self._random.random() * 100
        forms = SIMPLE
        if chance < self._refuses:
            forms = REFUSED
        elif chance < 6:
            forms = (*LEAVES, *OF_LOOPS) if in_loop else LEAVES
        elif chance < 35 and depth < 2:
            forms = COMPOUND
        return self._filled(self._random.choice(forms), 0, depth, in_loop)

    def _filled(self, template, depth, level, in_loop):
        names = {"N": self.name(), "M": self.name()}

        def fill(match):
            part = match[0]
            if part in "EF":
                return self.expression(depth)
            if part in "BCL":
                block = self.block(level + 1, in_loop or part == "L")
                return "".join(f"    {line}\n" for line in block)
            return names[part]

        return re.sub(r"\b[EFNM]\b|(?<=\n)[BCL](?=\b|else|elif|except|finally|$)", fill, template)
