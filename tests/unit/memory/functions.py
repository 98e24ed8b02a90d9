"""Datasets in many forms, to be split at each of their steps. Not a test module: see impure.py."""

import contextlib
import inspect
import random
import sys


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


class Annotated(Base):
    """The compiler makes scopes of its own for a default and, as from Python 3.14 on, for annotations."""

    def __getitem__(self, i: int, key=lambda pair: pair[0]) -> tuple:
        value = load(self.items[i])
        return self.transform(value), key((value, i))


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
        return {"a": both, **pairs, "b": noisy(2)}, rest, lambda: self.items


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


class LocalImports(Base):
    def __getitem__(self, i):
        import json as js
        import os.path
        from math import floor as down

        x = js.loads(f"[{self.items[i]}]")
        y = noisy(i)
        return js.dumps(x), down(y), os.path.basename(f"a/{y}")  # noqa: PTH119


class Matches(Base):
    def __getitem__(self, i):
        match [load(i), *self.items]:
            case [0, *rest]:
                k = 1
            case [k, *rest] if k > 4:
                pass
            case [int() as k, _, *rest]:
                noisy(k)
        match {"a": noisy(1), "b": i}:
            case {"b": 2 | 3 as b, **others}:
                return b, others, k
        return k, rest


class Deletes(Base):
    def __getitem__(self, i):
        x, y = load(i), [i]
        if i > 2:
            del x
        z = noisy(i)
        y.append(z)
        try:
            return x, y
        except UnboundLocalError as error:
            return str(error), y


class Comprehensions(Base):
    def __getitem__(self, i):
        x = load(i)
        every = [(x, noisy(k), x := x + 1) for k in range(i)]
        once = {each: noisy(each) for each in self.table}
        total = sum(noisy(k) + x for k in range(i))
        return every, once, total, max((noisy(k) for k in self.items), default=0), {x for x in "ab"}


class SeesParameters(Base):
    def __getitem__(self, i):
        get = lambda k: self.items[k] + i  # noqa: E731
        late = (noisy(self.items[k]) for k in range(i))
        x = noisy(get(i))
        return x, list(late), sorted(self.items, key=lambda k: -k)


class SameNameTwice(Base):
    def __getitem__(self, i):
        for x in range(i):
            pass
        y = noisy(i)
        x = [x for x in self.items if x > y]
        return [x for x in x], y


class Unpacks(Base):
    def __getitem__(self, i):
        pair = (*[load(i), noisy(i)], noisy(2))
        text = "{} {}".format(*pair[:1], *[noisy(3)])
        also = dict(**self.table, **dict(c=noisy(4)), d=noisy(5))  # noqa: C408
        return [*pair, noisy(6)], text, {**also, "e": noisy(7)}, noisy(8)


class ChangesWhatFollows:
    """Its attributes draw and are changed: nothing may be looked up earlier or later."""

    @property
    def noise(self):
        return noisy


class LooksUpOfSteps(Base):
    def part(self, i):
        noisy(i)
        return ChangesWhatFollows()

    def __getitem__(self, i):
        return self.part(i).noise(noisy(i)), self.part(1).noise(self.part(2).noise(3))


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


def rebound_by_a_lambda(self, i):
    x = load(i)
    get = lambda: x  # noqa: E731
    if noisy(1) > 1:
        x = -x
    return get()


def rebound_behind_a_generator(self, i):
    x = load(i)
    late = (noisy(k) + x for k in range(i))
    noisy(i)
    x = -x
    return list(late)


def rebound_in_a_comprehension(self, i):
    gets = [lambda: k for k in self.items]
    noisy(i)
    return [get() for get in gets]


def defines_a_class(self, i):
    class Holder:
        held = load(i)

    return noisy(Holder.held)


def sees_locals_by_another_name(self, i):
    x = load(i)
    noisy(x)
    return held_names()


def sees_a_frame(self, i):
    x = load(i)
    noisy(x)
    return here().f_back.f_locals


def counts_holders(self, i):
    x = [load(i)]
    noisy(i)
    return holders(x)


def binds_a_global(self, i):
    global bound
    bound = load(i)
    return noisy(bound)


def imports_inspect(self, i):
    import inspect as look

    x = load(i)
    noisy(x)
    return look.currentframe()


def handles_groups(self, i):
    try:
        x = load(i)
    except* ValueError:
        x = 1
    return noisy(x)


held_names, here, holders, bound = locals, inspect.currentframe, sys.getrefcount, 0


class BindsTwiceAtOnce:
    def __getitem__(self, i):
        a, (b, a) = i, (i, 2)  # noqa: F841
        return a + random.random()


LEFT = {
    BindsTwiceAtOnce: "binds a name twice at once",
    Generator: "yield", SeesItsFrame: "locals", MangledName: "depends on its class",
    Decorated: "rewritten|source|decorator|not", DefinesAFunction: "a function",
    rebound_by_a_lambda: "sees x", rebound_behind_a_generator: "sees x",
    rebound_in_a_comprehension: "sees k", defines_a_class: "a class",
    sees_locals_by_another_name: "held_names", sees_a_frame: "f_back|f_locals|here",
    counts_holders: "holders", binds_a_global: "a global", imports_inspect: "inspect",
    handles_groups: "a trystar",
}  # fmt: skip
