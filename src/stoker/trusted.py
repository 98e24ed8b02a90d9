"""Names the packages whose functions keep no state between calls but the three global generators.

So a dataset's fingerprint need not follow them, and what they draw can be seen in the generators.

Promise: a package is known by its files: one of such a name beside the script is the script's. What
the script has put into a package, `put_in` finds. Ban: no guess by `__module__`, which anybody sets.
"""

import abc
import contextlib
import functools
import os
import re
import sys
import types
from collections.abc import Collection, Iterator
from operator import attrgetter, is_, itemgetter
from typing import Any, NamedTuple

from stoker.blame import is_installed
from stoker.clock import now_s
from stoker.unchanged import are_unchanged, dict_of
from stoker.uncollected import uncollected

PACKAGES = (frozenset(sys.stdlib_module_names) - {"__main__"}) | {
    "PIL", "numpy", "stoker", "torch", "torchvision",
    # read files, and transform what was read
    "albucore", "albumentations", "av", "cv2", "h5py", "laspy", "librosa", "monai", "nibabel",
    "pandas", "polars", "pyarrow", "pydicom", "rasterio", "scipy", "soundfile", "soxr", "torchaudio",
    "torchcodec",
}  # fmt: skip
# Modules that make no sample: streams and hooks, which scripts replace, setuptools' too; training; ours.
_NOT_SEARCHED = (
    "asyncio", "ctypes", "distutils", "multiprocessing", "stoker", "sympy", "sys", "threading", "torch._C.",
    "torch._dynamo", "torch._export", "torch._functorch", "torch._higher_order_ops", "torch._inductor",
    "torch._numpy", "torch._prims", "torch._refs", "torch.ao", "torch.cuda", "torch.distributed", "torch.export",
    "torch.fx", "torch.jit", "torch.onnx", "torch.optim", "torch.testing", "torch.utils.data.dataloader", "torchvision.models",
)  # fmt: skip
# Tables by which libraries choose a function: module and name. None tells of those in codecs.
_REGISTRIES = (
    ("PIL.Image", "OPEN"), ("PIL.Image", "DECODERS"), ("PIL.Image", "ENCODERS"),
    ("PIL.Image", "SAVE"), ("copyreg", "dispatch_table"),
    ("torch.utils.data._utils.collate", "default_collate_fn_map"),
    ("torch.utils._pytree", "SUPPORTED_NODES"),
    ("torchvision.transforms.v2.functional._utils", "_KERNEL_REGISTRY"),
    ("monai.data.image_reader", "SUPPORTED_READERS"), ("monai.transforms.io.array", "SUPPORTED_READERS"),
    ("scipy.fft._backend", "_named_backends"), ("torch.distributions.kl", "_KL_REGISTRY"),
)  # fmt: skip
# An operator that Python computes in place of torch, which itself does that for derivatives and other devices.
_OF_OPERATOR = re.compile("(aten|torchvision|torchaudio)/.*/(CPU|Composite.*)")
_NOBODY_SEES = (each for each in "")  # torch does not tell the function, and a generator refuses
_FUNCTION = types.FunctionType
_CALLING = (_FUNCTION, staticmethod, classmethod, types.MethodType, property)
_code_of = attrgetter("__code__")
_OURS = os.path.dirname(__file__) + os.sep  # noqa: PTH120  # text, as files of code are
_known: dict[str, tuple[object, bool]] = {}  # by root: the module that it was, and the answer


def is_trusted(module: object) -> bool:
    """Whether a module, by its dotted name, is of one of these packages."""
    if not isinstance(module, str):
        return False
    root = module.partition(".")[0]
    if root not in PACKAGES:
        return False
    found, known = sys.modules.get(root), _known.get(root)
    if known is None or known[0] is not found:
        known = _known[root] = found, found is None or _is_library(found)
    return known[1]


def _is_library(module: Any) -> bool:
    file = getattr(module, "__file__", None)
    places = [file] if file else list(getattr(module, "__path__", ()))
    spec = getattr(module, "__spec__", None)
    is_in_python = getattr(spec, "origin", None) in ("built-in", "frozen")
    return all(map(is_library_file, places)) if places else is_in_python


@functools.cache
def is_library_file(file: str) -> bool:
    """Whether a file is the standard library's, an installed package's, or ours."""
    torch = os.path.dirname(os.path.dirname(str(getattr(sys.modules.get("torch"), "__file__", ""))))  # noqa: PTH120  # as above
    beside_torch = (torch + os.sep,) if torch else ()  # pip install --target
    return is_installed(file) or file.startswith((_OURS, *beside_torch))


def is_librarys(value: Any, known_as: object = None) -> bool:
    """Whether a function or class is a trusted library's own: its module leads to it by its name, and
    a function was written there. What a library makes while it runs is not. known_as: what it was
    wrapped in, to which the name leads."""
    if not is_trusted(value.__module__):
        return False
    if isinstance(value, type):
        if not value.__flags__ & 1 << 9:  # Py_TPFLAGS_HEAPTYPE: it is C's
            return True
    elif not is_written_by_library(value):
        return False
    found: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is (value if known_as is None else known_as)


def is_written_by_library(function: types.FunctionType) -> bool:
    """Whether a function was written in a trusted library, or made by one."""
    file, name = function.__code__.co_filename, function.__globals__.get("__name__", "namedtuple_")
    is_made = file.startswith("<") and str(name).startswith("namedtuple_")
    return is_made or (is_trusted(name) and (file.startswith("<") or is_library_file(file)))


def is_ours(code: types.CodeType) -> bool:
    return code.co_filename.startswith(_OURS)


# -- what the script has put in ------------------------------------------------------------------

_FRAC, _FIRST_S = 0.01, 3.0  # of the time, for looks at all modules; the first one of a child
_found: dict[str, object] = {}
_found_of: tuple[int, int] = (0, 0)  # process, and number of modules
_look_again_s = 0.0
_is_for_children = False


def put_in(fresh: bool = False) -> dict[str, object]:
    """Return what in trusted modules, their classes and registries is of nobody who may be trusted, by
    its name. Looks again in a new process, or if others are imported, else now and then: a first look
    takes 60 ms for torch, NumPy, torchvision and SciPy, later ones 5."""
    global _found, _found_of, _look_again_s, _is_for_children
    now, of = now_s(), (os.getpid(), len(sys.modules))
    if _is_for_children and of[0] != _found_of[0]:  # nothing of the script's has run since the fork
        _is_for_children, _found_of, _look_again_s = False, of, now + _FIRST_S
    if of != _found_of and of[0] == _found_of[0] and not _search.has_met_others:
        _found_of = of  # what a library imports of its own
    if fresh or of != _found_of or now > _look_again_s:
        with uncollected():  # what it finds is no garbage
            _found, _found_of = dict(sorted(_search.found(), key=itemgetter(0))), of
        _look_again_s = now_s() + (now_s() - now) / _FRAC
    return _found


@contextlib.contextmanager
def looked_for_children() -> Iterator[None]:
    """Look once more, so that processes which are forked meanwhile need not: there each object that is
    looked at costs the copy of a page."""
    global _is_for_children
    with contextlib.suppress(Exception):  # then they look, and tell why they cannot
        put_in(fresh=True)
        _is_for_children = True
    try:
        yield
    finally:
        _is_for_children = False


def look_again() -> None:
    """Look anew when asked next, as code of the script's has run in this new process."""
    global _is_for_children
    _is_for_children = False


class _Space(NamedTuple):
    """What one look has found in the names of a module or class: the rest of it need not be looked at
    again, while each name leads to the same object, and that to the same code or class. The first seven
    are what unchanged.c reads, in this order."""

    held: dict[str, Any]
    names: list[str]
    values: list[Any]
    functions: list[types.FunctionType]  # and those that other values call
    codes: list[types.CodeType]
    objects: list[Any]  # whose class may be changed
    kinds: list[type]
    owner: object
    found: list[tuple[str, object]]
    inner: list[type]  # classes to be looked into

    def is_same(self) -> bool:
        return (
            list(self.held) == self.names
            and all(map(is_, self.held.values(), self.values))
            and all(map(is_, map(_code_of, self.functions), self.codes))
            and all(map(is_, map(type, self.objects), self.kinds))
        )


def _function_of(value: Any) -> types.FunctionType | None:
    """Return the function that a value calls."""
    kind = type(value)
    while kind is not _FUNCTION:
        if kind is staticmethod or kind is classmethod or kind is types.MethodType:
            value = value.__func__
        elif kind is property:
            value = value.fget
        else:
            return None
        kind = type(value)
    return value  # type: ignore[no-any-return]


def _may_change(kind: type) -> bool:
    """Whether an object of this class may call other code, or be of another class, later."""
    is_pythons = bool(kind.__flags__ & 1 << 9)  # Py_TPFLAGS_HEAPTYPE
    return kind in _CALLING or (is_pythons and not issubclass(kind, type))


class _Search:
    """Looks at all trusted modules. Asks no object anything but its type, and no class whether it equals
    another: some answer with a warning."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._files: dict[str, bool] = {}  # of code -> whether the script's
        self._dull: set[type] = set()  # of values that are neither code nor the script's
        self._may_change: dict[type, bool] = {}  # objects of a class
        self._spaces: dict[int, _Space] = {}  # by id of a module or class
        self._modules: dict[str, types.ModuleType] = {}
        self._forget()

    def _forget(self) -> None:
        """All spaces are to be looked into anew, each that has changed."""
        self._found: list[tuple[str, object]] = []
        self._looked: list[_Space] = []
        self._seen: set[int] = set()  # ids of classes
        self._abstract: list[type] = []

    @property
    def has_met_others(self) -> bool:
        """Whether more than trusted modules has been imported since the last look."""
        new = set(sys.modules).difference(self._modules)
        return not all(map(is_trusted, new))

    def found(self) -> Iterator[tuple[str, object]]:
        modules = dict(sys.modules)
        if any(modules.get(name) is not held for name, held in self._modules.items()):
            self._begin()  # whose code something is may be another answer now
        new = [name for name in modules if name not in self._modules]
        self._modules = modules
        if not (are_unchanged and self._looked and are_unchanged(self._looked)):
            self._forget()
            new = list(modules)
        for owner, name in self._own(new):
            self._found.extend(self._in_space(owner, name))
        yield from self._found
        for kind in self._abstract:
            for each in registered_in(kind):
                if self._is_scripts(each):
                    yield f"{kind.__module__}.{kind.__qualname__}: {each.__qualname__}", each
        for name, attribute in _REGISTRIES:
            for number, value in enumerate(_flat(getattr(sys.modules.get(name), attribute, ()), 3)):
                if self._is_scripts(value):
                    yield f"{name}.{attribute} {number}", value
        for operator in getattr(sys.modules.get("torch.library"), "_impls", ()):
            if _OF_OPERATOR.fullmatch(operator):
                yield f"torch.library {operator}", _NOBODY_SEES

    def _own(self, names: Collection[str]) -> Iterator[tuple[types.ModuleType, str]]:
        """Iterate the modules among these that are searched."""
        for name in names:
            module = self._modules[name]
            if (
                type(module) is types.ModuleType
                and is_trusted(name)
                and not name.startswith(_NOT_SEARCHED)
            ):
                yield module, name

    def _in_space(self, owner: Any, path: str) -> Iterator[tuple[str, object]]:
        space = self._spaces.get(id(owner))
        if space is None or space.owner is not owner or not space.is_same():
            space = self._spaces[id(owner)] = self._looked_into(owner, path)
        self._looked.append(space)
        yield from space.found
        for kind in space.inner:
            if id(kind) not in self._seen:
                self._seen.add(id(kind))
                if type(kind) is abc.ABCMeta:
                    self._abstract.append(kind)
                yield from self._in_space(kind, f"{kind.__module__}.{kind.__qualname__}")

    def _looked_into(self, owner: object, path: str) -> _Space:
        held = dict_of(owner)
        names, values = list(held), list(held.values())
        may = self._may_change
        kinds = list(map(type, values))
        for kind in set(kinds).difference(may):
            may[kind] = _may_change(kind)
        changing = [each for each, kind in zip(values, kinds, strict=True) if may[kind]]
        functions = [each for each in map(_function_of, changing) if each is not None]
        objects = [each for each in changing if type(each) not in _CALLING]
        codes = list(map(_code_of, functions))
        space = _Space(
            held, names, values, functions, codes, objects, list(map(type, objects)), owner, [], []
        )
        dull, files = self._dull, self._files
        for name, value in zip(names, values, strict=True):
            kind = type(value)
            if kind in dull or (
                kind is _FUNCTION and files.get(value.__code__.co_filename) is False
            ):
                continue
            if self._is_scripts(value):
                space.found.append((f"{path}.{name}", value))
            elif issubclass(kind, type):
                module = value.__module__
                if is_trusted(module) and not module.startswith(_NOT_SEARCHED):
                    space.inner.append(value)
        return space

    def _is_scripts(self, value: Any) -> bool:
        kind = type(value)
        if kind is _FUNCTION:
            file = value.__code__.co_filename
            known = self._files.get(file)
            if known is None:
                known = not is_written_by_library(value) and not is_installed(file)
                if not file.startswith("<"):
                    self._files[file] = known
            return known
        if kind is staticmethod or kind is classmethod:
            return self._is_scripts(value.__func__)
        if kind is property:
            return self._is_scripts(value.fget)
        if kind is types.MethodType:
            return self._is_scripts(value.__func__) or self._is_scripts(value.__self__)
        if kind.__module__ == "pandas.core.accessor":  # as df.name gives it
            return self._is_scripts(getattr(value, "_accessor", None))
        if issubclass(kind, type):
            return _is_scripts_module(value.__module__)
        if _is_scripts_module(kind.__module__):
            return True
        self._dull.add(kind)
        return False


def _is_scripts_module(name: object) -> bool:
    if is_trusted(name):
        return False
    file = getattr(sys.modules.get(str(name)), "__file__", None)
    return name == "__main__" or (file is not None and not is_library_file(file))


def registered_in(kind: type) -> list[type]:
    """Return the classes that were registered with an abstract one, in no order that lasts."""
    if type(kind) is not abc.ABCMeta:
        return []
    found = (each() for each in abc._get_dump(kind)[0])  # type: ignore[attr-defined]  # as abc.py calls it
    return [each for each in found if each is not None]


_search = _Search()  # this process's, and at first that of the one that has forked it


def _flat(value: Any, depth: int) -> Iterator[object]:
    """Iterate what containers in containers hold."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple, set)):
        yield value
        return
    for each in value if depth else ():
        yield from _flat(each, depth - 1)
