"""Whatever decides a result moves the fingerprint, or the fingerprint is refused.

Each case is a small script, and the same with one thing in it changed.
"""

import calendar
import collections
import csv
import decimal
import functools
import itertools
import locale
import math
import os
import re
import sys
import time
import types
import warnings

import numpy as np
import pandas
import PIL.Image
import PIL.ImageFile
import PIL.PngImagePlugin
import pytest
import torch
from torch.utils.data._utils.collate import default_collate_fn_map

from stoker import trusted
from stoker.clock import Deadline
from stoker.fingerprint import modes
from stoker.fingerprint.fingerprint import Apart, Unwatchable, fingerprint
from stoker.memory.watch.lasting import is_of_session, lasting_of
from stoker.memory.watch.reach import state_of
from stoker.redirect import redirect

HEAD = """
import abc, collections, enum, functools, importlib, inspect, itertools, pathlib, random, re, sys
import numpy as np, torch
import helpers, helpers.deep
"""
HELPERS = {
    "helpers": "SCALE, OTHER = 2, 3\ndef factor(): return 2\n",
    "helpers.deep": "SCALE = 2\ndef factor(): return 2\n",
}


@pytest.fixture
def script(monkeypatch):
    """Make a script's module of its text, as if it had been imported from its own folder."""
    numbers = itertools.count()

    def made(text, name="script"):
        module = types.ModuleType(name)
        module.__file__ = f"/script/{name}.py"
        module.__package__ = "helpers" if name == "script" else name
        monkeypatch.setitem(sys.modules, name, module)
        if "." in name:
            setattr(sys.modules[name.partition(".")[0]], name.rpartition(".")[2], module)
        exec(compile(text, f"/script/{next(numbers)}.py", "exec"), vars(module))
        return module

    for name, text in HELPERS.items():
        made(text, name)
    return made


def look(**roots):
    """A fingerprint; each refusal is another."""
    try:
        return fingerprint(roots, Deadline(10))
    except Unwatchable as reason:
        return object() if str(reason) else None


def state():
    try:
        return state_of({"nothing": None}, Apart(), 10.0, lasts=False).now
    except Unwatchable:
        return object()


def data_of(body, before="", name="__getitem__"):
    return f"{HEAD}{before}\nclass Data:\n    def {name}(self, i):\n        {body}\n"


# -- code ----------------------------------------------------------------------------------------

TWO_SCRIPTS = {
    "names of parameters": (
        data_of("return norm(i, mean=5)", "def norm(x, mean=1, std=2): return (x - mean) / std"),
        data_of("return norm(i, mean=5)", "def norm(x, std=1, mean=2): return (x - std) / mean"),
    ),
    "a keyword of its own": (
        data_of("return f(1, k=2)", "def f(x, *, k=1): return x + k"),
        data_of("return f(1, k=2)", "def f(x, k=1): return x + k"),
    ),
    "a library's base class": (
        data_of("return S()(i)", "class S(torch.nn.Tanh): pass"),
        data_of("return S()(i)", "class S(torch.nn.Sigmoid): pass"),
    ),
    "a library's second base": (
        data_of("return S()", "class S(list, collections.abc.Hashable): __hash__ = None"),
        data_of("return S()", "class S(list, collections.abc.Callable): __hash__ = None"),
    ),
    "a metaclass": (
        data_of("return S()", "class M(type):\n  def __call__(c): return 1\nclass S(metaclass=M): pass"),
        data_of("return S()", "class M(type):\n  def __call__(c): return 2\nclass S(metaclass=M): pass"),
    ),
    "a number of a class of its own": (
        data_of("return X.twice()", "class N(int):\n  __slots__ = ()\n  def twice(s): return s * 2\nX = N(1)"),
        data_of("return X.twice()", "class N(int):\n  __slots__ = ()\n  def twice(s): return s * 3\nX = N(1)"),
    ),
    "a fraction of a class of its own": (
        data_of("return X + 1", "class N(float):\n  __slots__ = ()\n  def __add__(s, o): return 2.\nX = N(1)"),
        data_of("return X + 1", "class N(float):\n  __slots__ = ()\n  def __add__(s, o): return 3.\nX = N(1)"),
    ),
    "a complex number of a class of its own": (
        data_of("return abs(X)", "class N(complex):\n  __slots__ = ()\n  def __abs__(s): return 2.\nX = N(1)"),
        data_of("return abs(X)", "class N(complex):\n  __slots__ = ()\n  def __abs__(s): return 3.\nX = N(1)"),
    ),
    "what a library's class was made of": (
        data_of("return X().f()", "X = type('X', (), {'f': lambda s: 1, '__module__': 'torch.nn'})"),
        data_of("return X().f()", "X = type('X', (), {'f': lambda s: 2, '__module__': 'torch.nn'})"),
    ),
    "what wears a library's name": (
        data_of("return f(i)", "def f(x): return 1\nf.__module__ = 'torch.nn.functional'"),
        data_of("return f(i)", "def f(x): return 2\nf.__module__ = 'torch.nn.functional'"),
    ),
    "what wears the name of a library's function": (
        data_of("return f(i)", "@functools.wraps(torch.nn.functional.relu)\ndef f(x): return 1"),
        data_of("return f(i)", "@functools.wraps(torch.nn.functional.relu)\ndef f(x): return 2"),
    ),
    "a long pattern": (
        data_of("return X.match('a')", f"X = re.compile({'a' * 300 + 'b'!r})"),
        data_of("return X.match('a')", f"X = re.compile({'a' * 300 + 'c'!r})"),
    ),
    "the pattern of bytes": (
        data_of("return X.match(b'a')", f"X = re.compile({b'a' * 300 + b'b'!r})"),
        data_of("return X.match(b'a')", f"X = re.compile({b'a' * 300 + b'c'!r})"),
    ),
    "how many a queue holds": (
        data_of("return X", "X = collections.deque([1], 3)"),
        data_of("return X", "X = collections.deque([1], 4)"),
    ),
    "a generator of a class of its own": (
        data_of("return X.draw()", "class R(random.Random):\n  def draw(s): return 1\nX = R(1)"),
        data_of("return X.draw()", "class R(random.Random):\n  def draw(s): return 2\nX = R(1)"),
    ),
    "what such a generator holds": (
        data_of("return X.k", "class R(random.Random): pass\nX = R(1)\nX.k = 1"),
        data_of("return X.k", "class R(random.Random): pass\nX = R(1)\nX.k = 2"),
    ),
    "a partial of a class of its own": (
        data_of("return X.f()", "class P(functools.partial):\n  def f(s): return 1\nX = P(max)"),
        data_of("return X.f()", "class P(functools.partial):\n  def f(s): return 2\nX = P(max)"),
    ),
    "how a property is deleted": (
        data_of("return 1", "class S:\n  x = property(None, None, lambda s: 1)\nX = S()").replace("return 1", "del X.x"),
        data_of("return 1", "class S:\n  x = property(None, None, lambda s: 2)\nX = S()").replace("return 1", "del X.x"),
    ),
    "whether a tensor counts gradients": (
        data_of("return X.requires_grad", "X = torch.zeros(1)"),
        data_of("return X.requires_grad", "X = torch.zeros(1, requires_grad=True)"),
    ),
    "a module's answer to any name": (
        data_of("return helpers.any", "helpers.__dict__['__getattr__'] = lambda name: 1"),
        data_of("return helpers.any", "helpers.__dict__['__getattr__'] = lambda name: 2"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("scripts", TWO_SCRIPTS.values(), ids=TWO_SCRIPTS)
def test_two_scripts_of_which_one_thing_differs_have_two_fingerprints(scripts, script):
    first, second = (look(dataset=script(text).Data()) for text in scripts)
    assert first != second


@pytest.mark.parametrize(
    "change",
    [
        {"co_exceptiontable": b""}, {"co_flags": 0x1000013}, {"co_varnames": ("i", "self", "y")}, {"co_freevars": ("b",)},
        {"co_posonlyargcount": 2}, {"co_name": "other"}, {"co_qualname": "other"}, {"co_cellvars": ("y",)},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_each_field_of_a_code_object_counts_but_where_it_stands(change):
    a = 1

    def made(self, i):
        try:
            y = a
        except KeyError:
            y = 2
        return y

    before = look(f=made)
    try:
        code = made.__code__.replace(co_filename="elsewhere", co_firstlineno=7)
        made.__code__ = code
        assert look(f=made) == before
        name, value = next(iter(change.items()))
        if len(value) != len(getattr(code, name)) if isinstance(value, tuple) else False:
            pytest.skip("a code object of other variables")
        made.__code__ = code.replace(**change)
    except ValueError:
        pytest.skip("not of this function")
    assert look(f=made) != before


# -- tables and sets -----------------------------------------------------------------------------

CHANGES_OF_A_TABLE = {
    "a number": lambda table: table.isetitem(1, [0, 1, 3]),
    "a text": lambda table: table.isetitem(0, ["a", "b", "d"]),
    "a type": lambda table: table.isetitem(1, np.array([0, 1, 2], np.int8)),
    "a column's name": lambda table: setattr(table, "columns", ["file", "class"]),
    "the rows' names": lambda table: setattr(table, "index", [3, 4, 5]),
    "the index's name": lambda table: setattr(table.index, "name", "row"),
    "an attribute": lambda table: table.attrs.update(a=1),
    "a flag": lambda table: setattr(table.flags, "allows_duplicate_labels", False),
}


@pytest.mark.parametrize("change", CHANGES_OF_A_TABLE.values(), ids=CHANGES_OF_A_TABLE)
def test_a_table_of_pandas_is_watched(change):
    table = pandas.DataFrame({"file": ["a", "b", "c"], "label": [0, 1, 2]})
    before = look(table=table)
    assert table.iloc[1, 0] == "b" and table.loc[2, "label"] == 2 and 2 in table.index
    assert type(before) is bytes
    assert look(table=table) == before == look(table=table.copy())
    change(table)
    now = look(table=table)
    assert type(now) is bytes and now != before


def test_an_accessor_that_is_put_into_pandas_moves_it(script):
    before = look(put_in=trusted.put_in(fresh=True))
    module = script("class Added:\n    def __init__(self, table): pass")
    pandas.api.extensions.register_dataframe_accessor("added")(module.Added)
    try:
        assert look(put_in=trusted.put_in(fresh=True)) != before
    finally:
        del pandas.DataFrame.added
        pandas.DataFrame._accessors.discard("added")


def test_a_set_of_tuples_has_an_order_and_one_of_objects_has_none():
    first, second = (look(of={("tarfile", name), frozenset({("a", 1)})}) for name in ("A", "B"))
    assert type(first) is type(second) is bytes and first != second
    with pytest.raises(Unwatchable, match="no order"):
        fingerprint({"of": {("tarfile", object())}}, Deadline(10))


# -- names that are found at run time ------------------------------------------------------------

FINDS = (
    "return globals()['X']",
    "return eval('X')",
    "return exec('X')",
    "return vars(helpers)['SCALE']",
    "return getattr(helpers, 'SC' + 'ALE')",
    "return helpers.__dict__['SCALE']",
    "return getattr(helpers.deep, 'SC' + 'ALE')",
    "return sys.modules['helpers'].SCALE",
    "return importlib.import_module('helpers').SCALE",
    "return __import__('helpers').SCALE",
    "return inspect.currentframe().f_globals['X']",
    "return self.__getitem__.__globals__['X']",
    "return [m for m in (helpers, helpers.deep)][1].SCALE",
    "from sys import modules; return modules['helpers'].SCALE",
    "import sys as s; return s.modules['helpers'].SCALE",
    "import helpers as h; return getattr(h, 'SCALE')",
    "import helpers.deep as h; return h.SCALE",
    "import helpers.deep; return helpers.deep.SCALE",
    "from helpers import deep as d; return d.SCALE",
    "from . import deep; return deep.SCALE",
    "from .deep import SCALE; return SCALE",
    "from .deep import factor as f; return f()",
    "return (lambda: helpers.deep.SCALE)()",
    "return import_module('helpers').SCALE",
    "return modules['helpers'].SCALE",
    "return frame_of().f_globals['X']",
)


@pytest.mark.parametrize("body", FINDS)
def test_what_a_script_finds_by_name_moves_it_or_is_refused(body, script):
    by_name = "from importlib import import_module\nfrom sys import modules\nfrom inspect import currentframe as frame_of"
    module = script(data_of(body, by_name) + "X = 2")
    before = look(dataset=module.Data())
    for held in (sys.modules["helpers"], sys.modules["helpers.deep"]):
        held.SCALE = 5
        held.factor.__code__ = (lambda: 5).__code__
    module.X = 5
    assert look(dataset=module.Data()) != before


def test_a_module_that_is_imported_later_moves_it(script):
    dataset = script(data_of("from . import later; return later.K")).Data()
    before = look(dataset=dataset)
    script("K = 1", "helpers.later")
    assert look(dataset=dataset) != before


@pytest.mark.parametrize(
    "body",
    ["import os; os.path.join('a'); return open('a').read()", "self.eval(); return re.compile('a')",
     "return vars(self), getattr(self, 'x'), type(self).__name__"],
)  # fmt: skip
def test_what_only_looks_like_it_is_watched(body, script):
    dataset = script(data_of(body)).Data()
    assert look(dataset=dataset) == look(dataset=dataset)


@pytest.mark.parametrize(
    "body",
    [
        "return np.datetime64('now')",
        "return np.array('today', 'M8[s]')",
        "return np.asarray(['now']).astype('M8[s]')",
    ],
)
def test_the_time_that_numpy_reads_is_refused(body, script):
    with pytest.raises(Unwatchable, match="clock"):
        fingerprint({"dataset": script(data_of(body)).Data()}, Deadline(10))


@pytest.mark.parametrize(
    "text", ["@functools.lru_cache\ndef f(): return 1", "@functools.cache\ndef f(): return 1",
             "f = functools.lru_cache(4)(max)"],
)  # fmt: skip
def test_what_a_cache_holds_is_refused(text, script):
    module = script(data_of("return f()", text))
    with pytest.raises(Unwatchable, match="lru_cache"):
        fingerprint({"dataset": module.Data()}, Deadline(10))


def test_a_class_that_is_registered_moves_it(script):
    module = script(data_of("return isinstance(i, A)", "class A(abc.ABC): pass\nclass B: pass"))
    before = look(dataset=module.Data())
    module.A.register(module.B)
    assert look(dataset=module.Data()) != before


# -- libraries -----------------------------------------------------------------------------------

PUT_IN = {
    "a method": "torch.nn.Mish.forward = lambda self, x: {}",
    "a function": "torch.nn.functional.mish = lambda x: {}",
    "a static method": "torch.nn.Mish.new = staticmethod(lambda x: {})",
    "a property": "torch.nn.Mish.new = property(lambda x: {})",
    "a class": "class Mine:\n    k = {}\ntorch.nn.Mine = Mine",
    "an object": "class Mine:\n    k = {}\ntorch.nn.mine = Mine()",
    "what the standard library calls": "import json.decoder\njson.decoder.scanstring = lambda *a: {}",
    "what NumPy calls": "np.lib.format.read_magic = lambda fp: {}",
    "a reader of images": "import PIL.Image\nPIL.Image.register_open('MINE', lambda *a: {})",
    "a decoder of images": "import PIL.Image\nPIL.Image.register_decoder('MINE', lambda *a: {})",
    "how samples are collated": "from torch.utils.data._utils.collate import default_collate_fn_map as m\n"
    "class Mine: pass\nm[Mine] = lambda *a, **k: {}",
    "how objects are pickled": "import copyreg\nclass Mine: pass\ncopyreg.pickle(Mine, lambda x: {})",
    "a class registered with another": "class Mine{0}: pass\ncollections.abc.Sequence.register(Mine{0})",
}


@pytest.fixture
def as_before(monkeypatch):
    """Undo what a script puts in."""
    for owner, name in ((torch.nn.Mish, "forward"), (torch.nn.functional, "mish")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    for owner, name in ((torch.nn.Mish, "new"), (torch.nn, "Mine"), (torch.nn, "mine")):
        monkeypatch.setattr(owner, name, None, raising=False)
    monkeypatch.setattr(
        sys.modules["json.decoder"], "scanstring", sys.modules["json.decoder"].scanstring
    )
    monkeypatch.setattr(np.lib.format, "read_magic", np.lib.format.read_magic)
    tables = (
        PIL.Image.OPEN,
        PIL.Image.DECODERS,
        default_collate_fn_map,
        sys.modules["copyreg"].dispatch_table,
    )
    for table in tables:
        for key in list(table):
            monkeypatch.setitem(table, key, table[key])
    before = [dict(each) for each in tables]
    ids = list(PIL.Image.ID)
    yield
    for table, held in zip(tables, before, strict=True):
        table.clear()
        table.update(held)
    PIL.Image.ID[:] = ids


@pytest.mark.parametrize("text", PUT_IN.values(), ids=PUT_IN)
@pytest.mark.usefixtures("as_before")
def test_what_a_script_puts_into_a_library_moves_it(text, script):
    seen = [fingerprint({"put in": trusted.put_in(fresh=True)}, Deadline(10))]
    for value in (1, 2):
        script(HEAD + text.format(value))
        seen.append(fingerprint({"put in": trusted.put_in(fresh=True)}, Deadline(10)))
    assert len(set(seen)) == 3


@pytest.mark.parametrize("name", ["laspy", "rasterio", "pydicom"])
def test_a_package_is_trusted_by_its_files(name, monkeypatch, tmp_path):
    module = types.ModuleType(name)
    module.__file__ = str(tmp_path / name / "__init__.py")
    monkeypatch.setitem(sys.modules, name, module)
    assert not trusted.is_trusted(f"{name}.inner")
    module = types.ModuleType(name)
    module.__file__ = torch.__file__.replace("/torch/", f"/{name}/")
    monkeypatch.setitem(sys.modules, name, module)
    assert trusted.is_trusted(f"{name}.inner")


# -- settings ------------------------------------------------------------------------------------

SETTINGS = {
    "decimal": (lambda: decimal.getcontext().prec, lambda v: setattr(decimal.getcontext(), "prec", v), 7),
    "rounding": (lambda: decimal.getcontext().rounding, lambda v: setattr(decimal.getcontext(), "rounding", v),
                 decimal.ROUND_UP),
    "denormal": (lambda: False, torch.set_flush_denormal, True),
    "mkldnn": (lambda: torch.backends.mkldnn.enabled, lambda v: torch.backends.mkldnn.set_flags(v), False),
    "matmul": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"),
    "cudnn": (lambda: torch.backends.cudnn.deterministic, lambda v: setattr(torch.backends.cudnn, "deterministic", v), True),
    "fill": (lambda: torch.utils.deterministic.fill_uninitialized_memory,
             lambda v: setattr(torch.utils.deterministic, "fill_uninitialized_memory", v), False),
    "NumPy's text": (lambda: np.get_printoptions()["precision"], lambda v: np.set_printoptions(precision=v), 3),
    "torch's text": (lambda: 4, lambda v: torch.set_printoptions(precision=v), 2),
    "buffer": (np.getbufsize, np.setbufsize, 1 << 14),
    "digits": (sys.get_int_max_str_digits, sys.set_int_max_str_digits, 5000),
    "csv": (csv.field_size_limit, csv.field_size_limit, 100),
    "calendar": (calendar.firstweekday, calendar.setfirstweekday, 3),
    "png": (lambda: PIL.PngImagePlugin.MAX_TEXT_CHUNK, lambda v: setattr(PIL.PngImagePlugin, "MAX_TEXT_CHUNK", v), 9),
    "block": (lambda: PIL.ImageFile.MAXBLOCK, lambda v: setattr(PIL.ImageFile, "MAXBLOCK", v), 9),
    "locale": (lambda: locale.setlocale(locale.LC_NUMERIC), lambda v: locale.setlocale(locale.LC_NUMERIC, v), "C.UTF-8"),
    "warnings": (lambda: list(warnings.filters), lambda v: warnings.filters.__setitem__(slice(None), v),
                 [("error", re.compile("x" * 300), Warning, None, 0)]),
    "time zone": (lambda: "UTC", lambda v: (pytest.MonkeyPatch().setattr(time, "timezone", v)), 3600),
    "validation": (lambda: torch.distributions.Distribution._validate_args,
                   torch.distributions.Distribution.set_default_validate_args, False),
}  # fmt: skip


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_a_setting_moves_it(setting, monkeypatch):
    read, write, other = setting
    monkeypatch.setattr(time, "timezone", time.timezone)
    before, held = modes.surroundings(), read()
    try:
        write(other)
        after = modes.surroundings()
    finally:
        write(held)
    assert after != before


@pytest.mark.parametrize(("module", "name", "default"), modes._SETTINGS)
def test_a_setting_of_what_nobody_imported_yet_is_what_it_will_be(module, name, default):
    held = sys.modules.get(module)
    if held is None or default is None:
        pytest.skip("not here, or told as soon as torch is imported")
    value = functools.reduce(getattr, name.split("."), held)
    assert (value() if callable(value) else value) == default


def test_options_of_pandas_count_once_somebody_sets_them(monkeypatch):
    told = modes.modes()
    with pandas.option_context("display.precision", 3):
        assert modes.modes() != told
    monkeypatch.delitem(sys.modules, "pandas._config.config")
    assert modes.modes() == told


def test_a_hook_of_ours_before_compiled_code_changes_nothing(script):
    held = script(HEAD + "import math\ndef reads(x): return math.hypot(x, 1)")
    before = look(reads=held.reads)
    undo = redirect(math, "hypot", lambda original, arguments, named: original(*arguments, **named))
    after = look(reads=held.reads)
    undo()
    assert after == before


def test_what_is_put_into_a_library_is_part_of_the_state(script, monkeypatch):
    monkeypatch.setattr(torch.nn.Mish, "forward", torch.nn.Mish.forward)
    before = state()
    script(HEAD + "torch.nn.Mish.forward = lambda self, x: 1")
    monkeypatch.setattr(trusted, "_look_again_s", 0.0)
    assert state() != before


def in_child(call):
    """The exit code that a call gives in a forked process."""
    pid = os.fork()
    if pid == 0:
        os._exit(call())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_process_that_is_forked_behind_a_look_need_not_look(monkeypatch):
    looks = []
    monkeypatch.setattr(trusted._Search, "found", lambda self: looks.append(1) or iter(()))

    def num_looks(*before):
        for call in before:
            call()
        trusted.put_in()
        return len(looks)

    with trusted.looked_for_children():
        assert in_child(num_looks) == 1  # this process's
        assert in_child(functools.partial(num_looks, trusted.look_again)) == 2
    assert in_child(num_looks) == 2


def test_a_class_that_answers_when_it_is_compared_is_not_asked(monkeypatch):
    """As one of `typing` on Python 3.14, which warns and equals another."""

    class Answers(type):
        def __eq__(cls, other):
            raise AssertionError

        def __hash__(cls):
            return hash(collections.OrderedDict)

    made = Answers("Made", (), {"__module__": "collections", "k": lambda self: 1})
    before = look(put_in=trusted.put_in(fresh=True))
    monkeypatch.setattr(collections, "Made", made, raising=False)
    assert look(put_in=trusted.put_in(fresh=True)) != before


def test_a_look_that_fails_leaves_it_to_the_children(monkeypatch):
    def fails(self):
        raise ValueError

    monkeypatch.setattr(trusted._Search, "found", fails)
    with trusted.looked_for_children():
        assert not trusted._is_for_children


def test_code_that_is_replaced_in_a_known_function_moves_it(monkeypatch):
    function = torch.nn.functional.hardswish
    before = look(put_in=trusted.put_in(fresh=True))
    monkeypatch.setattr(function, "__code__", (lambda input, inplace=False: input).__code__)
    assert look(put_in=trusted.put_in(fresh=True)) != before


def test_a_seed_of_hashes_lasts_and_a_job_is_known_by_its_bytes():
    assert lasting_of({"PYTHONHASHSEED": "1", "SLURM_JOB_ID": "7"}) == {"PYTHONHASHSEED": "1"}
    assert is_of_session(b"SLURM_JOB_ID")
    assert not is_of_session(b"PYTHONHASHSEED")
