"""Datasets in many forms, to be split at each of their steps. Not a test module: see impure.py."""

import contextlib
import random


def load(number):
    return number * 2


def noisy(number):
    return number + random.random()


class Parent:
    def shifted(self, x):
        return x + 1


class Base(Parent):
    def __init__(self):
        self.items = [3, 1, 4, 1, 5]
        self.table = {"a": 2, "b": 3}
        self.transform = noisy
        self.nothing = None
        self.__hidden = 7

    def __len__(self):
        return len(self.items)


class OneLine(Base):
    def __getitem__(self, i):
        return self.transform(load(self.items[i])), self.items[i]


class Branches(Base):
    def __getitem__(self, i):
        x = self.items[i]
        if x > 3:
            y = load(x)
            if self.transform is not None:
                y = self.transform(y)
            z = [y for _ in range(2)]
        elif x == 1:
            y = noisy(x)
            z = None
        else:
            y = z = x
        if self.nothing is None:
            return y, z, noisy(x)
        return None


class Mangled(Base):
    def __getitem__(self, i):
        x = self.items[i] + self._Base__hidden
        y = super().shifted(noisy(x))
        return x, y


class Loops(Base):
    def __getitem__(self, i):
        total = 0
        for k in range(i):
            total += noisy(k)
        while total > 2:
            total -= 1
        with contextlib.suppress(ValueError):
            total += noisy(total)
            raise ValueError
        try:
            total = self.table["c"]
        except KeyError as error:
            total = (total, str(error))
        finally:
            last = noisy(1)
        return total, last


class Names(Base):
    def __getitem__(self, index):
        index = int(index)
        first, *rest = self.items[index:] + [noisy(index)]
        if (n := len(rest)) > 1:
            rest[0] += n
        pairs = {k: noisy(v) for k, v in self.table.items()}
        both = first if n else rest
        text = f"{both} {noisy(index)}"
        assert text
        del text
        return {"a": both, **pairs, "b": noisy(2)}, rest, lambda: index


class Unbound(Base):
    def __getitem__(self, i):
        if i > 2:
            x = 1
        y = noisy(i)
        try:
            return x + y
        except UnboundLocalError as error:
            return y, str(error)


class Ands(Base):
    def __getitem__(self, i):
        x = (self.items[i] and noisy(i)) or self.nothing
        y = noisy(1) if i % 2 else 0
        return x, not noisy(y) < 1 < noisy(2), -noisy(3), [*range(i), noisy(4)]


class Closure(Base):
    pass


def _close(scale):
    def __getitem__(self, i):  # noqa: N807
        return noisy(self.items[i]) * scale

    return __getitem__


Closure.__getitem__ = _close(3)


class Augmented(Base):
    def __getitem__(self, i):
        x = self.items[i]
        x += noisy(x)
        x: float = x * noisy(i)
        return x


class Raises(Base):
    def __getitem__(self, i):
        x = load(i)
        y = noisy(x)
        if i == 2:
            raise LookupError(f"no {x}")
        return y


class MoreArguments(Base):
    def __getitem__(self, i, j=2, *more, k=3, **others):
        x = load(i) + j
        return x, noisy(k), more, others


FORMS = [each for each in Base.__subclasses__()]


class LooksUpFirst(Base):
    """Each name is looked up before what stands to its right is called."""

    count = 0

    def bump(self, i):
        self.count += load(i)
        self.transform = load
        return self.count

    @property
    def noise(self):
        return random.random()

    def __getitem__(self, i):
        x = i + (i := 5)
        return x, self.noise, self.transform(self.count + self.bump(i)), [self.count, noisy(i)], i


class Generator(Base):
    def __getitem__(self, i):
        yield i


class SeesItsFrame(Base):
    def __getitem__(self, i):
        return sorted(locals())


class MangledName(Base):
    def __getitem__(self, i):
        __x = load(i)
        return noisy(__x)


class Decorated(Base):
    @contextlib.contextmanager
    def __getitem__(self, i):
        yield i


class DefinesAFunction(Base):
    def __getitem__(self, i):
        def inner():
            return i

        return inner()


LEFT = {
    Generator: "yield", SeesItsFrame: "locals", MangledName: "depends on its class",
    Decorated: "rewritten|source|decorator|not", DefinesAFunction: "defines",
}  # fmt: skip
