"""A leak check around every test: whatever it started must be gone when it ends.

Processes, Python threads, file descriptors and /dev/shm entries. Mappings of slabs are pooled on
purpose; that the pool does not grow is tests/equality/test_leaks.py's business.
"""

import atexit
import gc
import multiprocessing
import os
import re
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import stoker.at_fork  # noqa: F401  # as arming does, before the heap is frozen
from tests import heap, methods, tiers

# Read when Triton is imported, which other libraries do too: without a GPU its loops are interpreted.
if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="the full tier: all tests")
    parser.addoption("--also-full", action="append", default=[], metavar="PATH",
                     help="the full tier of the tests below this path")  # fmt: skip
    parser.addoption("--start-method", help="how processes are started, if not as this Python does")


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The default tier, or all of them."""
    tiers.groups_of_files(items, ["tests/process", "tests/contract", "tests/frameworks"])
    if config.getoption("--full"):
        return
    named = [arg for arg in config.args if "::" in arg]
    named += config.getoption("--also-full")
    default, full = tiers.split(items, named)
    if full:
        config.hook.pytest_deselected(items=full)
        items[:] = default


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("--full") or sys.version_info >= (3, 14):
        os.environ["PYTHONPATH"] = str(Path(__file__).with_name("quick"))
    state = tempfile.mkdtemp(prefix="stokers-tests-state-")  # not the user's: logs of runs
    os.environ["XDG_STATE_HOME"] = state
    # What one test has proven of faster ways is no proof in another; compiled kernels stay the user's.
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(cache, "stoker", "kernels")))
    blocked = Path(tempfile.mkdtemp(prefix="stokers-tests-cache-"))
    (blocked / "stoker").touch()  # no folder can be made there
    os.environ["XDG_CACHE_HOME"] = str(blocked)
    for folder in (blocked, state):  # not earlier: what stoker writes at the end would make it anew
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    as_from_a_terminal()
    methods.use(config.getoption("--start-method"))


def as_from_a_terminal() -> None:
    """What a shell runs in the background ignores Ctrl-C, with nohup also a
    terminal's end, and so do its children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="module", autouse=True)
def what_was_imported_is_not_garbage() -> None:
    """Keeps the leak check cheap: it collects garbage thrice a test, and what a module or its
    fixtures brought is no test's. Never thawed: to look through all of torch takes 0.2 s a module."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def forks_are_cheap(request: pytest.FixtureRequest) -> None:
    if "unit" not in request.path.parts:
        heap.into_huge_pages()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short name: sockets lie below, whose paths have 107 bytes, and pytest-xdist's folder of each
    of its processes takes ten of them."""
    return tmp_path_factory.mktemp(re.sub(r"\W", "_", request.node.name)[:16])


GRACE_S = 5.0  # torch's own workers are joined for as long


@dataclass(frozen=True)
class Holdings:
    """What this process holds at one moment."""

    processes: frozenset[int]
    threads: frozenset[threading.Thread]
    fds: Counter[str]
    shm: frozenset[str]

    @classmethod
    def now(cls) -> "Holdings":
        return cls(descendants(), frozenset(threading.enumerate()), open_fds(), shm_entries())


def descendants(pid: int | None = None) -> frozenset[int]:
    """Pids of all processes below this one, zombies included. Of a Ray that a test has started
    those alone that are stoker's: Ray starts and ends its own as it likes."""
    found: set[int] = set()
    todo = [(os.getpid() if pid is None else pid, False)]
    if pid is None:  # these are nobody's children
        todo += [(template, False) for template in templates()]
        found.update(template for template in templates())
    while todo:
        parent, is_rays = todo.pop()
        for task in _listdir(f"/proc/{parent}/task"):
            for child in map(int, _read(f"/proc/{parent}/task/{task}/children").split()):
                what = _read(f"/proc/{child}/cmdline")  # empty: of a zombie
                of_ray = (is_rays or starts_ray(what)) and "stoker.remote.host" not in what
                todo.append((child, of_ray))
                if not of_ray and "resource_tracker" not in what:
                    found.add(child)
    return frozenset(found)


def starts_ray(cmdline: str) -> bool:
    """deploy/bare-hosts.sh, or what it becomes."""
    return "bare-hosts.sh" in cmdline or "/bin/ray\0start\0" in cmdline


def templates() -> list[int]:
    """Pids of the processes that fork this one's workers."""
    local = sys.modules.get("stoker.local.template")
    pids = [] if local is None else [t.pid for t in tuple(local.living)]
    # One that has ended is its new parent's to reap, which may take seconds over it.
    return [pid for pid in pids if pid and (state_of(pid) != "Z" or parent_of(pid) == os.getpid())]


def open_fds() -> Counter[str]:
    """Where the open file descriptors lead, without the numbers of anonymous ones."""
    targets = []
    for fd in _listdir("/proc/self/fd"):
        try:
            targets.append(str(Path("/proc/self/fd", fd).readlink()))
        except OSError:  # the listing's own fd
            continue
    ignored = ["/proc/"]
    if multiprocessing.get_start_method() != "fork":
        # A tensor that torch has pickled for workers is shared from then on, for as long as a module holds it.
        ignored.append(f"/dev/shm/torch_{os.getpid()}_")
    return Counter(t.split(":[")[0] for t in targets if not t.startswith(tuple(ignored)))


def shm_entries() -> frozenset[str]:
    """Entries of /dev/shm that carry our name or the number of this process."""
    ours = ("stoker", f"_{os.getpid()}_")
    return frozenset(n for n in _listdir("/dev/shm") if any(mark in n for mark in ours))


def _listdir(folder: str) -> list[str]:
    try:
        return [entry.name for entry in Path(folder).iterdir()]
    except OSError:
        return []


def _read(file: str) -> str:
    try:
        return Path(file).read_text()
    except OSError:
        return ""


def wait_until_gone(pids: frozenset[int], timeout_s: float) -> None:
    """Wait on pidfds, so as not to look again and again."""
    end_s = time.monotonic() + timeout_s
    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            poller = select.poll()
            poller.register(fd, select.POLLIN)
            poller.poll(max(0.0, end_s - time.monotonic()) * 1000)
        finally:
            os.close(fd)


def settle(before: frozenset[int], timeout_s: float = GRACE_S) -> None:
    """Wait until processes since `before` have ended, and see to what the next loader would.

    That is: to reap templates that were told to close and have, and to let go of the pipes by
    which pooled memory watches forked children that may still see it.
    """
    end_s = time.monotonic() + timeout_s
    wait_until_gone(descendants() - before, timeout_s)
    while others_zombies(before) and time.monotonic() < end_s:
        time.sleep(0.02)  # nobody is told when another process reaps its child
    gc.collect()  # what a thread or process held until it ended
    local, forks = (
        sys.modules.get(f"stoker.{m}") for m in ("local.template", "loaders.driver.forks")
    )
    if local is not None and forks is not None:
        local.reap()
        for lender in forks.pool:
            lender.take_returned()
        forks.forget_dead_children()


def leaks_since(before: Holdings) -> dict[str, object]:
    shelves = sys.modules.get("stoker.memory.store.shelves")
    if shelves is not None:
        shelves._shelf = None  # a process has one as long as it lives
    gc.collect()
    drivers_forks = sys.modules.get("stoker.loaders.driver.forks")
    if drivers_forks is not None:  # pooled arenas that can travel have descriptors
        spare = drivers_forks.pool._spare
        spare[:] = [each for each in spare if not each.regions.arena.can_travel]
    end_s = time.monotonic() + GRACE_S
    for thread in frozenset(threading.enumerate()) - before.threads:
        thread.join(max(0.0, end_s - time.monotonic()))
    settle(before.processes, max(0.0, end_s - time.monotonic()))
    now = Holdings.now()
    found: dict[str, object] = {
        "processes": {
            pid: _read(f"/proc/{pid}/stat").split(")")[0] + ") " + state_of(pid)
            for pid in now.processes - before.processes
        },
        "threads": now.threads - before.threads,
        "fds": now.fds - before.fds,
        "shm": now.shm - before.shm,
    }
    return {kind: what for kind, what in found.items() if what}


def others_zombies(before: frozenset[int]) -> set[int]:
    """Processes below this one that have ended and that their own parents must reap."""
    found = {pid for pid in descendants() - before if state_of(pid) == "Z"}
    return {pid for pid in found if parent_of(pid) != os.getpid()}


def parent_of(pid: int) -> int:
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[1]) if fields else 0


def state_of(pid: int) -> str:
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].strip()[:1]


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome = yield
    if call.when == "call":
        item.stash[FAILED] = outcome.get_result().failed


FAILED = pytest.StashKey[bool]()


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    before = Holdings.now()
    yield
    if request.node.stash.get(FAILED, False):  # its traceback holds iterators alive
        sys.last_exc = None  # so that they end before the next test
        return
    getattr(request.node, "funcargs", {}).clear()  # all other fixtures have ended
    leaks = leaks_since(before)
    assert not leaks, f"left behind: {leaks}"
