"""The compiled look at what modules and classes hold sees each change, and each only."""

import types

import pytest

from stoker.unchanged import are_unchanged, dict_of, load

needs_library = pytest.mark.skipif(are_unchanged is None, reason="was installed without a compiler")


class Kind:
    a = 1

    def method(self):
        return 1


def other(_self):
    return 2


@pytest.fixture
def seen():
    """A module and a class, and what was seen of them."""
    module = types.ModuleType("module")
    module.first, module.last = [], {}  # nothing that equals another one is the same
    kind = type("Kind", (), dict(vars(Kind)))
    kind.method = types.FunctionType(Kind.method.__code__, {})
    code, made = [kind.method.__code__], kind()
    both = [
        (held, list(held), list(held.values()), [kind.method], code, [made], [kind])
        for held in map(dict_of, (module, kind))
    ]
    return module, kind, both


CHANGES = {
    "a value": lambda module, kind, held: setattr(module, "first", []),
    "the last value": lambda module, kind, held: setattr(module, "last", {}),
    "one name more": lambda module, kind, held: setattr(module, "more", None),
    "one name less": lambda module, kind, held: delattr(module, "last"),
    "all names": lambda module, kind, held: vars(module).clear(),
    "a class": lambda module, kind, held: setattr(kind, "a", 2),
    "one more of a class": lambda module, kind, held: setattr(kind, "more", None),
    "one less of a class": lambda module, kind, held: delattr(kind, "a"),
    "a function": lambda module, kind, held: setattr(held[0][3][0], "__code__", other.__code__),
    "an object": lambda module, kind, held: setattr(held[0][5][0], "__class__", Kind),
}


@needs_library
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_seen(seen, change):
    assert are_unchanged(seen[2])
    change(*seen)
    assert not are_unchanged(seen[2])


@needs_library
def test_what_is_put_back_is_unchanged(seen):
    module, _kind, held = seen
    first, module.first = module.first, None
    code, held[0][3][0].__code__ = held[0][3][0].__code__, other.__code__
    assert not are_unchanged(held)
    module.first, held[0][3][0].__code__ = first, code
    assert are_unchanged(held)


@needs_library
def test_an_order_is_seen(seen):
    module, _, held = seen
    first = vars(module).pop("first")
    vars(module)["first"] = first
    assert not are_unchanged(held)


def test_without_the_library_there_is_no_look(tmp_path):
    assert load(tmp_path / "libunchanged.so") is None
