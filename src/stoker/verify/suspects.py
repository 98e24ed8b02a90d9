"""Finds what in the code behind a loader may make two runs differ, and at which line it stands.

Reads, never runs: objects by their attributes, functions by their source. A finding is no proof,
only the likeliest reason once batches differ.
Promise: ends by its deadline, calls no property and no method of the script's, imports nothing.
"""

import collections
import functools
import re
import sys
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from stoker.clock import Deadline
from stoker.trusted import is_trusted
from stoker.verify.record import Finding
from stoker.verify.sources import NOTHING, Named, Use, attribute_of, uses

MAX_OBJECTS = 20_000  # a model hangs on some datasets; reading it all would name nothing more
MAX_ITEMS = 100  # of one container: samples are alike

_SEQUENCES = (list, tuple, set, frozenset, collections.deque)

# kind -> dotted names. Which kind is the likelier reason is compare.py's to say.
SUSPECTS = {
    "entropy": (
        "os.urandom", "os.getrandom", "uuid.uuid1", "uuid.uuid4", "secrets.token_bytes",
        "secrets.token_hex", "secrets.token_urlsafe", "secrets.randbelow", "secrets.randbits",
        "secrets.choice", "secrets.SystemRandom", "random.SystemRandom", "torch.seed",
    ),
    "unseeded": (  # entropy, where it is called without a seed
        "random.Random", "random.seed", "numpy.random.default_rng", "numpy.random.RandomState",
        "numpy.random.SeedSequence", "numpy.random.seed", "numpy.random.PCG64",
    ),
    "clock": (
        "time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter",
        "time.perf_counter_ns", "time.process_time", "time.process_time_ns", "time.thread_time",
        "time.clock_gettime", "time.localtime", "time.gmtime", "time.strftime", "time.ctime",
        "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today",
        "datetime.date.today",
    ),
    "timing": (  # an order, or a state, that depends on who is quicker
        "concurrent.futures.as_completed", "concurrent.futures.wait", "asyncio.as_completed",
        "asyncio.wait", "queue.Queue", "queue.SimpleQueue", "queue.LifoQueue",
        "multiprocessing.Queue", "multiprocessing.SimpleQueue",
    ),
    "thread": (
        "threading.Thread", "threading.Timer", "_thread.start_new_thread", "asyncio.run",
        "concurrent.futures.ThreadPoolExecutor", "concurrent.futures.ProcessPoolExecutor",
        "multiprocessing.Pool", "multiprocessing.pool.ThreadPool", "multiprocessing.Process",
    ),
    "process": (  # which process it is, and what is in it
        "os.getpid", "os.getppid", "threading.get_ident", "threading.get_native_id",
        "multiprocessing.current_process", "multiprocessing.parent_process", "sys.modules",
        "os.environ", "os.getenv", "os.cpu_count", "os.sched_getaffinity",
    ),
    "address": ("builtins.id",),
    "folder": ("os.listdir", "os.scandir", "os.walk", "glob.glob", "glob.iglob"),
}  # fmt: skip
# Methods that tell by their name alone, whatever they are called on.
_METHODS = {"imap_unordered": "timing", "iterdir": "folder", "rglob": "folder"}
_KINDS = {name: kind for kind, names in SUSPECTS.items() for name in names}
_COMPREHENSION = re.compile(r"(\.<locals>)?\.<(listcomp|setcomp|dictcomp|genexpr)>")
_NOT_ASSIGNED_YET = types.CellType()
_NOT_CALLED = {"os.environ", "sys.modules"}


def scan(
    roots: Mapping[str, object], frame: types.FrameType | None, deadline: Deadline
) -> list[Finding]:
    """Find suspects in all that `roots` reach, and those that seed in `frame` and its callers."""
    scanner = _Scanner(deadline)
    for name, root in roots.items():
        scanner.add(root, name)
    scanner.read_all()
    scanner.read_callers(frame)
    return list(scanner.found.values())


class _Scanner:
    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._todo: collections.deque[tuple[Any, str]] = collections.deque()
        self._seen: dict[int, object] = {}  # holds what it has seen, or an id may come again
        self._targets = _targets()
        self._is_loop = False
        self.found: dict[tuple[str, str], Finding] = {}

    def add(self, value: object, path: str) -> None:
        if id(value) not in self._seen and len(self._seen) < MAX_OBJECTS:
            self._seen[id(value)] = value
            self._todo.append((value, path))

    def read_all(self) -> None:
        while self._todo and not self._deadline.is_over():
            value, path = self._todo.popleft()
            word = self._word(value)
            if word and _kind_of(word) != "unseeded":  # a generator that is kept may have a seed
                self._note(word, path, "", "dataset")
            elif not word:
                self._read(value, type(value), path)

    def read_callers(self, frame: types.FrameType | None) -> None:
        """Read the training loop, where a suspect must seed: many clocks there only print."""
        self._is_loop = True
        while frame is not None and not self._deadline.is_over():
            if not _is_trusted(frame.f_globals.get("__name__")) and not _is_library(frame.f_code):
                self._read_code(frame.f_code, frame.f_globals, {})
            frame = frame.f_back

    # -- objects ---------------------------------------------------------------------------

    def _read(self, value: Any, kind: type, path: str) -> None:
        if kind is types.FunctionType:
            self._read_function(value)
        elif kind is types.MethodType:
            self._add_all((value.__func__, value.__self__), path)
        elif issubclass(kind, type):
            self._read_class(value)
        elif kind is functools.partial:
            self._add_all((value.func, value.args, value.keywords), path)
        elif kind is property:
            self._add_all((value.fget, value.fset), path)
        elif kind in (staticmethod, classmethod):
            self.add(value.__func__, path)
        elif kind is not types.ModuleType:  # of a module only what is used, by _read_code
            self._read_instance(value, kind, path)

    def _add_all(self, items: Iterable[object], path: str) -> None:
        for _, item in zip(range(MAX_ITEMS), items, strict=False):
            self.add(item, path)

    def _read_instance(self, value: Any, kind: type, path: str) -> None:
        """Read an object by built-in types' and `object`'s methods: a subclass may have its own."""
        if issubclass(kind, dict):
            self._add_all(dict.values(value), f"{path}[...]")
        for base in _SEQUENCES:
            if issubclass(kind, base):
                self._add_all(base.__iter__(value), f"{path}[...]")
        if kind.__module__ == "builtins":
            return
        self.add(kind, path)
        for name, attribute in _attributes(value, kind):
            self.add(attribute, f"{path}.{name}")

    def _read_class(self, value: type) -> None:
        for owner in value.__mro__:
            if _is_trusted(owner.__module__):
                continue
            for base in owner.__bases__:
                word = self._word(base)
                if word:
                    self._note(word, _place_of_class(owner), owner.__qualname__, "dataset")
            for name, attribute in list(vars(owner).items()):
                self.add(attribute, f"{owner.__qualname__}.{name}")

    def _read_function(self, value: types.FunctionType) -> None:
        path = value.__qualname__
        self.add(getattr(value, "__wrapped__", None), path)
        cells = {
            name: cell.cell_contents
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
            if cell != _NOT_ASSIGNED_YET
        }
        self._add_all(cells.values(), path)  # a trusted decorator holds the script's function
        if not _is_trusted(value.__module__):
            self._add_all(value.__defaults__ or (), path)
            self._add_all((value.__kwdefaults__ or {}).values(), path)
            self._read_code(value.__code__, value.__globals__, cells)

    # -- code ------------------------------------------------------------------------------

    def _read_code(
        self, code: types.CodeType, names: Mapping[str, Any], local: Mapping[str, Any]
    ) -> None:
        if id(code) in self._seen:
            return
        self._seen[id(code)] = code
        for use in uses(code, names, local):
            self._consider(use, code)

    def _consider(self, use: Use, code: types.CodeType) -> None:
        word = self._word(use.value)
        if not word and use.value is NOTHING and use.attribute in _METHODS:
            word = use.attribute
        if word and self._may_matter(word, use):
            where = "loop" if self._is_loop else "library" if _is_library(code) else "dataset"
            inside = _COMPREHENSION.sub("", code.co_qualname)
            self._note(word, f"{_short(code.co_filename)}:{use.line}", inside, where)
        elif not word and not self._is_loop and type(use.value) is not Named:
            self.add(use.value, code.co_qualname)

    def _may_matter(self, word: str, use: Use) -> bool:
        kind = _kind_of(word)
        if self._is_loop and not any("seed" in name.lower() for name in use.beside):
            return False
        if kind == "folder":
            return "sorted" not in use.beside
        return kind != "unseeded" or use.called_without

    def _word(self, value: Any) -> str:
        if type(value) is Named:  # not isinstance, which asks the object for its __class__
            return str(value) if value in _KINDS else ""
        if type(value) is types.BuiltinMethodType:  # datetime.now is a new object each time
            return self._targets.get(value, "")
        return self._targets.get(id(value), "")

    def _note(self, word: str, place: str, inside: str, where: str) -> None:
        kind = "entropy" if _kind_of(word) == "unseeded" else _kind_of(word)
        shown = word.removeprefix("builtins.") + ("" if word in _NOT_CALLED else "()")
        self.found.setdefault((word, place), Finding(shown, kind, place, inside, where))


def _kind_of(word: str) -> str:
    return _KINDS.get(word) or _METHODS[word]


def _targets() -> dict[object, str]:
    """Return each suspect that is there: built-in functions by themselves, all else by id."""
    found: dict[object, str] = {}
    for name in _KINDS:
        first, *rest = name.split(".")
        value: Any = sys.modules.get(first, NOTHING)
        for part in rest:
            value = attribute_of(value, part)
        if value is not NOTHING and type(value) is not Named:
            found[value if type(value) is types.BuiltinMethodType else id(value)] = name
    return found


def _attributes(value: Any, kind: type) -> list[tuple[str, object]]:
    """Return an instance's attributes: its __dict__ and its slots."""
    try:
        found = list(object.__getattribute__(value, "__dict__").items())
    except AttributeError:
        found = []
    for owner in kind.__mro__:
        for name, slot in list(vars(owner).items()):
            if type(slot) is types.MemberDescriptorType and not _is_trusted(owner.__module__):
                try:
                    found.append((name, slot.__get__(value)))
                except AttributeError:  # empty
                    continue
    return found


def _place_of_class(kind: type) -> str:
    for attribute in vars(kind).values():
        if isinstance(attribute, types.FunctionType):
            code = attribute.__code__
            return f"{_short(code.co_filename)}:{code.co_firstlineno}"
    return kind.__module__


def _is_trusted(module: object) -> bool:
    return not isinstance(module, str) or is_trusted(module)


def _is_library(code: types.CodeType) -> bool:
    return "site-packages" in code.co_filename or "dist-packages" in code.co_filename


def _short(file: str) -> str:
    return file.removeprefix(f"{Path.cwd()}/")
