"""Datasets whose `__getitem__` calls functions and methods that draw, to be cut inside those. Not a
test module: see impure.py."""

from tests.unit.memory.functions import Base, load, noisy


def augment(x, scale=2, *more, shift=1, **others):
    x = load(x) + shift
    if x < 0:
        return x, "early"
    y = noisy(x) * scale
    return x, y, more, sorted(others.items())


def outer(dataset, x):
    x = load(x)
    pair = inner(x, of=dataset)
    return pair, noisy(1)


def inner(x, of):
    item = of.items[0]
    value = noisy(item)
    return x + value, len(of)


def countdown(n):
    if n == 0:
        return noisy(0)
    rest = load(n)
    return rest + countdown(n - 1)


def closed(scale):
    def scaled(x):
        x = load(x)
        return noisy(x) * scale

    return scaled


def failing(x):
    x = load(x)
    if x > 6:
        raise LookupError(f"early {x}")
    y = noisy(x)
    if x == 2:
        raise LookupError(f"late {y}")
    return y


class Augment:
    def __init__(self, scale):
        self.scale = scale
        self.last = None

    def __call__(self, x, times=1):
        x = load(x) * self.scale
        self.last = noisy(times)
        return x + self.last

    def apply(self, x):
        return self(x) + self.helped(x)

    @staticmethod
    def helped(x):
        return noisy(x)


class Function(Base):
    def __getitem__(self, i):
        return augment(self.items[i]), i


class Arguments(Base):
    def __getitem__(self, i):
        rest = (7, 8)
        self.more = {"a": i}
        found = augment(self.items[i] - 3, i, *rest, shift=noisy(i) - 1, z=3, **self.more)
        return found, augment(-9), augment(x=i)


class Method(Base):
    def __getitem__(self, i):
        x = self.loaded(i)
        return self.changed(x), i

    def loaded(self, i):
        return load(self.items[i])

    def changed(self, x):
        y = x + 1
        self.seen = noisy(y)
        return self.seen + y


class TwoLevels(Base):
    def __getitem__(self, i):
        return outer(self, self.items[i])


class Recursion(Base):
    def __getitem__(self, i):
        return countdown(i)


class InAClosure(Base):
    def __init__(self):
        super().__init__()
        self.scaled = closed(3)

    def __getitem__(self, i):
        return self.scaled(i)


class AnObject(Base):
    def __init__(self):
        super().__init__()
        self.augment = Augment(3)

    def __getitem__(self, i):
        x = self.augment(self.items[i], times=i)
        return x, self.augment.apply(x), self.augment.helped(x)


class OfAParent(Method):
    def __getitem__(self, i):
        x, i = super().__getitem__(i)
        return x, i, noisy(i)


class AProperty(Base):
    times = 0

    @property
    def fresh(self):
        self.times += 1
        return Augment(self.times)

    def __getitem__(self, i):
        x = self.fresh(i)
        return x, self.times


class Fails(Base):
    def __getitem__(self, i):
        return failing(i), i


class Rebound(Base):
    def __getitem__(self, i):
        self, i = i, self
        return augment(self), len(i)


FORMS = [
    Function, Arguments, Method, TwoLevels, Recursion, InAClosure, AnObject, OfAParent, AProperty,
    Fails, Rebound,
]  # fmt: skip
