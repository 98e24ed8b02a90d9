"""Wait for `torch.utils.data` and DDP to be imported, then patch them.

Promise: a process that never imports torch pays for this file and an import hook, nothing else
(<= 1 ms). Ban: never imports torch itself; never lets an error of ours into the script.
"""

from __future__ import annotations

import atexit
import os
import sys

TYPE_CHECKING = False  # as typing's, which costs 3 ms to import
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from stoker.config import Settings

WATCHED = "torch.utils.data"
WATCHED_DDP = "torch.nn.parallel.distributed"
PROOF = "STOKER_PROOF"  # set by `stoker verify`; verify/record.py


_is_armed = False
_settings: Settings | None = None  # from stoker.install; else the environment tells


class _Watcher:
    """An import hook that finds nothing itself, but runs `then` once `watched` was executed."""

    def __init__(self, watched: str, then: Callable[[], None]) -> None:
        self._watched = watched
        self._then = then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self._watched or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader, self._then)  # type: ignore[assignment]  # a loader by its two methods
        return spec


class _Begun:
    """An import hook that finds nothing itself, but starts what may run while torch is imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name == "torch" and self in sys.meta_path:
            sys.meta_path.remove(self)
            try:
                from stoker.config import from_env
                from stoker.local import fork_server

                if not (_settings or from_env()).off:  # else all is as without stoker
                    fork_server.begin_early()
            except Exception:
                pass  # a server starts later, as torch would start it
        return None


class _Then:
    """A module loader that runs the real one, removes itself from the module and calls `then`."""

    def __init__(self, loader: Any, then: Callable[[], None]) -> None:
        self._loader = loader
        self._then = then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._then()


def install() -> None:
    """Patch torch; on any error of ours leave everything to torch and print one line."""
    try:
        from stoker.config import from_env
        from stoker.intercept import patches

        settings = _settings or from_env()
        patches.install(settings)
        if settings.verbose and not _is_a_helper():
            _say(f"on in {_name()}, torch {sys.modules['torch'].__version__}")
    except Exception as error:
        _say(f"off, everything is left to torch: {error}")


def _say(text: str) -> None:
    """Print a line with speak.say; nothing if even that fails."""
    try:  # contextlib would cost a process without torch 3 ms
        from stoker import speak

        speak.say(text)
    except Exception:
        return


def arm() -> None:
    """Install the import hooks, once. Run by the .pth line at interpreter start if STOKER_RUN is set;
    in a virtual environment Python reads that twice (site.venv calls addsitepackages as well)."""
    global _is_armed
    if _is_armed:
        return
    _is_armed = True
    try:  # noqa: SIM105  # contextlib would cost a process without torch 3 ms
        from stoker import at_fork  # noqa: F401  # finds its lists while the heap is small
    except Exception:
        pass  # told where it is needed
    if "STOKER_VERBOSE" in os.environ:
        atexit.register(_tell_that_it_was_on)
    if "torch" not in sys.modules:
        sys.meta_path.insert(0, _Begun())
    for watched, then in ((WATCHED, install), (WATCHED_DDP, install_ddp)):
        if watched in sys.modules:
            then()
        else:
            sys.meta_path.insert(0, _Watcher(watched, then))
    if PROOF in os.environ:
        _seed()


def arm_with(settings: Settings) -> None:
    """Patch torch with these settings, now or when it is imported. For a process that runs already.

    Raises what patching raises, if torch is here.
    """
    global _settings
    _settings = settings
    if WATCHED in sys.modules:
        from stoker.intercept import patches

        patches.install(settings)
        if WATCHED_DDP in sys.modules:
            patches.install_ddp()
    arm()  # for what is not imported yet; once a process


def disarm() -> None:
    """Undo the patches; from now on nothing is patched on import either."""
    global _is_armed, _settings
    for watcher in [each for each in sys.meta_path if isinstance(each, (_Watcher, _Begun))]:
        sys.meta_path.remove(watcher)
    _is_armed, _settings = False, None
    if "stoker.intercept.patches" in sys.modules:
        from stoker.intercept import patches

        patches.restore()


def _tell_that_it_was_on() -> None:
    """Print a line if this process ends and has iterated no loader: then there is no summary."""
    if _is_a_helper():
        return
    if "stoker.intercept.patches" not in sys.modules:
        _say(f"{_name()} never imported torch.utils.data: nothing to do")
    elif not sys.modules["stoker.intercept.run"].has_recorder():
        _say(f"{_name()} iterated no DataLoader: nothing to do")


def _is_a_helper() -> bool:
    """Whether multiprocessing started this process, or we did: a spawned worker, a fork server, a tracker."""
    return any(
        f"from {package}." in w
        for w in sys.orig_argv
        for package in ("multiprocessing", "stoker.local")
    )


def _name() -> str:
    return f"{sys.argv[0].rpartition(os.sep)[2] or 'python'} (pid {os.getpid()})"


def install_ddp() -> None:
    """Patch DDP; on any error of ours leave gradients to DDP and print one line."""
    try:
        from stoker.intercept import patches

        patches.install_ddp()
    except Exception as error:
        _say(f"gradients are left to DDP: {error}")


def _seed() -> None:
    """Seed both sides of `stoker verify` alike; the script's own seeds come later."""
    from stoker.verify import side

    side.seed_python()
    sys.meta_path.insert(0, _Watcher("numpy.random", side.seed_numpy))
    sys.meta_path.insert(0, _Watcher(WATCHED, side.seed_torch))
