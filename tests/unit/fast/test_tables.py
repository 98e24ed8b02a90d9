"""Tables of audio libraries: when they are given again, and when the library is called."""

import functools
import importlib
import sys
import threading
import types
import warnings
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from stoker.fast import place as place_module
from stoker.fast.report import FastWish
from stoker.fast.tables import MAX_NBYTES, MAX_TABLES, Tables

LIBRARY = '''
"""A stand-in: a library of this name, whose calls are counted."""
import warnings
import numpy as np
from librosa import util

calls = []

def to_mel(sr):
    return sr / 4

def quotient(sr):
    return np.float32(4) / np.float32(sr)  # zero: warned of from C

def mel(*, sr, n_mels=3, norm="slaney"):
    calls.append(sr)
    if n_mels == 0:
        warnings.warn("Empty filters detected", stacklevel=2)
    if n_mels < 0:
        raise ValueError("n_mels")
    if norm is None:
        return np.full((n_mels, 2), quotient(sr))
    if norm == "of another":
        return np.full((n_mels, 2), util.lazily(sr), dtype=np.float32)
    return np.full((n_mels, 2), to_mel(np.float32(sr if np.isscalar(sr) else sr[0])))
'''
UTIL = """
def __getattr__(name):
    if name != "lazily":
        raise AttributeError(name)
    from librosa import others
    return others.lazily
"""
OTHERS = """
def lazily(sr):
    return sr / 8
"""
NUM_PROVE = 5  # calls: one makes it, four are compared
NUM_MADE = NUM_PROVE + 1  # it is made a second time before it is kept


@pytest.fixture
def library(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "librosa"]:
        monkeypatch.delitem(sys.modules, name)
    package = tmp_path / "site-packages" / "librosa"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for name, source in {"filters": LIBRARY, "util": UTIL, "others": OTHERS}.items():
        (package / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(package.parent)
    yield importlib.import_module("librosa.filters")
    for name in [name for name in sys.modules if name.partition(".")[0] == "librosa"]:
        sys.modules.pop(name)


def tables(*, audit=False, known=None):
    made = Tables(FastWish(audit, known or {}))
    made.look()
    return made


def proven(library, **arguments):
    for _ in range(NUM_PROVE):
        library.mel(**arguments)
    assert len(library.calls) == NUM_MADE


def test_a_table_is_given_again_in_memory_of_its_own(library):
    made, original = tables(), library.mel(sr=16_000)
    proven(library, sr=16_000)
    first = library.mel(sr=16_000)
    first[:] = 7
    second = library.mel(sr=16_000)
    assert len(library.calls) == NUM_MADE
    assert (second == original).all() and second.dtype == original.dtype
    assert second.flags.owndata and second.flags.writeable
    assert [(p.place, p.num_made, p.num_checked) for p in made.news()] == [
        ("librosa.filters.mel", 7, 4)
    ]


def test_who_holds_the_function_calls_ours_too(library):
    held = library.mel
    tables()
    proven(library, sr=16_000)
    held(sr=16_000)
    assert len(library.calls) == NUM_MADE


@pytest.mark.parametrize("pair", [(1, 1.0), (1, True), (0.0, -0.0)], ids=str)
def test_numbers_that_only_equal_each_other_have_tables_of_their_own(library, pair):
    tables(known={"librosa.filters.mel": ""})
    shown = [library.mel(sr=each).tobytes() for each in (*pair, *pair)]
    assert len(library.calls) == 4
    assert shown[:2] == shown[2:]


def test_what_is_not_plain_goes_to_the_library(library):
    tables(known={"librosa.filters.mel": ""})
    for _ in range(3):
        library.mel(sr=[16_000])
        library.mel(sr=np.float32(16_000))
    assert len(library.calls) == 6


def test_what_is_warned_of_is_made_each_time_and_the_warning_names_the_line(library):
    tables(known={"librosa.filters.mel": ""})
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(3):
            library.mel(sr=16_000, n_mels=0)
    assert [(each.filename, str(each.message)) for each in told] == 3 * [
        (__file__, "Empty filters detected")
    ]


def test_errors_are_the_librarys_each_time(library):
    tables(known={"librosa.filters.mel": ""})
    for _ in range(3):
        with pytest.raises(ValueError, match="n_mels"):
            library.mel(sr=16_000, n_mels=-1)
        with pytest.raises(TypeError, match=r"mel\(\) missing"):
            library.mel()
    assert len(library.calls) == 3


@pytest.mark.parametrize("when", ["before", "later"])
def test_a_script_that_replaces_what_the_function_calls_has_it_called(library, monkeypatch, when):
    if when == "later":
        tables()
        proven(library, sr=16_000)
    monkeypatch.setattr(library, "to_mel", lambda sr: sr * 2)
    if when == "before":
        tables(known={"librosa.filters.mel": ""})
    before = len(library.calls)
    assert {float(library.mel(sr=100)[0, 0]) for _ in range(3)} == {200.0}
    assert len(library.calls) == before + 3


def test_a_table_that_differs_is_left_alone_and_the_original_is_delivered(library, monkeypatch):
    made = tables()
    library.mel(sr=100)
    monkeypatch.setattr(library.to_mel, "__code__", (lambda sr: sr * 2).__code__)
    assert [float(library.mel(sr=100)[0, 0]) for _ in range(3)] == 3 * [200.0]
    (told,) = made.news()
    assert "differed" in told.why
    assert len(library.calls) == 5


def test_what_was_proven_is_compared_now_and_then_or_always(library, monkeypatch):
    monkeypatch.setattr(place_module, "CHECK_EVERY", 8)
    tables(known={"librosa.filters.mel": ""})
    for _ in range(1 + 16):
        library.mel(sr=100)
    assert len(library.calls) == 2 + 2


def test_an_audit_compares_all(library):
    made = tables(audit=True, known={"librosa.filters.mel": ""})
    for _ in range(17):
        library.mel(sr=100)
    assert len(library.calls) == 18
    assert made.news()[0].num_checked == 16


def test_what_was_left_alone_by_others_is_not_tried(library):
    made = tables(known={"librosa.filters.mel": "a result differed from the original's"})
    for _ in range(17):
        library.mel(sr=100)
    assert len(library.calls) == 17
    assert made.news() == []


def test_threads_and_tracers_get_the_library(library):
    tables(known={"librosa.filters.mel": ""})
    library.mel(sr=100)
    thread = threading.Thread(target=library.mel, kwargs={"sr": 100})
    thread.start()
    thread.join()
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        library.mel(sr=100)
    finally:
        sys.settrace(before)
    assert len(library.calls) == 2 + 2


def test_what_is_kept_is_bounded_and_what_was_wanted_last_stays(library):
    tables(known={"librosa.filters.mel": ""})
    for sr in range(1, 3 * MAX_TABLES):
        library.mel(sr=sr)
        library.mel(sr=1)
    before = len(library.calls)
    library.mel(sr=1)
    library.mel(sr=3 * MAX_TABLES - 1)
    assert len(library.calls) == before
    library.mel(sr=2)
    assert len(library.calls) > before


def test_a_table_that_would_fill_the_memory_is_not_kept(library):
    made = tables(known={"librosa.filters.mel": ""})
    large = MAX_NBYTES // 8 + 1
    library.mel(sr=1, n_mels=large)
    assert not made._kept
    for sr in range(1, 10):
        library.mel(sr=sr, n_mels=large // 4)
    assert len(made._kept) == 4


def test_what_numpy_warns_of_is_warned_of_each_time(library):
    made = tables(known={"librosa.filters.mel": ""})
    for _ in range(3):
        with pytest.warns(RuntimeWarning, match="divide by zero"):
            library.mel(sr=0, norm=None)
    assert not made._kept
    library.mel(sr=1, norm=None)
    assert len(made._kept) == 1


@pytest.mark.parametrize(
    "kind", [lambda f: functools.partial(f), lambda f: Mock(side_effect=f), np.vectorize]
)
def test_what_wraps_a_function_of_the_scripts_is_the_scripts(library, monkeypatch, kind):
    monkeypatch.setattr(library, "to_mel", kind(lambda sr: sr * 2))
    made = tables(known={"librosa.filters.mel": ""})
    library.mel(sr=100)
    library.mel(sr=100)
    assert len(library.calls) == 2
    assert not made._kept


def test_what_a_module_gives_when_asked_can_be_replaced(library, monkeypatch):
    tables(known={"librosa.filters.mel": ""})
    asked = {"sr": 80, "norm": "of another"}
    assert {float(library.mel(**asked)[0, 0]) for _ in range(3)} == {10.0}
    monkeypatch.setattr("librosa.util.lazily", lambda sr: 5.0, raising=False)
    assert float(library.mel(**asked)[0, 0]) == 5.0


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_transforms_of_functions_and_traces_get_the_library(library):
    tables(known={"librosa.filters.mel": ""})
    library.mel(sr=100)

    def f(x):
        return x * float(library.mel(sr=100)[0, 0])

    x = torch.ones(3)
    torch.func.jvp(f, (x,), (x,))
    torch.jit.trace(f, (x,))
    assert len(library.calls) >= 2 + 2


def test_what_fails_in_stoker_is_told_and_leaves_the_library_alone(library, monkeypatch):
    monkeypatch.setattr("stoker.fast.tables.redirect", lambda *_: 1 / 0)
    made = tables()
    library.mel(sr=100)
    assert [(told.place, told.why[:31]) for told in made.news()] == [
        ("librosa.filters.mel", "stoker failed: ZeroDivisionErro")
    ]
    assert made.news() == []
    assert len(library.calls) == 1


def test_an_odd_module_is_left_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "librosa.filters", None)
    made = tables()
    assert made.news() == []
    odd = types.ModuleType("librosa.filters")
    odd.mel = lambda: 3
    monkeypatch.setitem(sys.modules, "librosa.filters", odd)
    tables()
    assert odd.mel() == 3
