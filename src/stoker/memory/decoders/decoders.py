"""Redirects a worker's calls of well-known decoders to the shelf.

Only while a dataset is at work that is not remembered itself.

Promise: calls from other threads, from processes that the dataset forks, from inside another
decoder, and under a tracer, profiler or debugger go to the functions themselves; so do all calls
while nothing is switched on.
Owner: the worker's main thread.
"""

import contextlib
import functools
import hashlib
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from stoker.fingerprint.modes import surroundings
from stoker.memory.decoders.decoder import Decoder
from stoker.memory.decoders.libraries import IMAGE_LOAD, REDIRECTED, Redirected
from stoker.memory.decoders.work import Work
from stoker.memory.desk import Desk
from stoker.memory.watch import is_traced, lasting_of
from stoker.redirect import LOCAL, Hook, Undo, redirect
from stoker.stack import passed_over
from stoker.trusted import is_trusted, put_in

_active: "Decoders | None" = None  # this process's, to which redirected calls go
_redirected: dict[Redirected, Undo | None] = {}


class Decoders:
    """A worker's decoders. Off at first."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._is_on = self._is_busy = False
        self._thread = threading.get_ident()
        self._num_modules = 0
        self._decoders: dict[str, Decoder] = {}
        # Weakly: the system never forgets what is registered, and we hold the shelf.
        os.register_at_fork(after_in_child=functools.partial(_end, weakref.ref(self)))

    def switch_on(self) -> None:
        """For good: the dataset is an iterable. Called again, redirect what was imported meanwhile."""
        self._is_on = True
        self.look()

    def during(self, make: Callable[..., Any], *arguments: Any) -> Any:
        """Return what the dataset makes. Raises what it raises."""
        with contextlib.suppress(Exception):  # ours
            self.look()
        before, self._is_on = self._is_on, True
        try:
            return make(*arguments)
        finally:
            self._is_on = before

    def look(self) -> None:
        """Redirect what has been imported since the last look."""
        global _active
        num = len(sys.modules)
        if num == self._num_modules:
            return
        self._num_modules, _active = num, self
        for each in REDIRECTED:
            if each not in _redirected and each.module in sys.modules:
                _redirected[each] = None
                _redirected[each] = _redirect(each, _serving(each))

    def may_call(self) -> bool:
        """Whether a call of this moment is one that may be served."""
        return (
            self._is_on
            and not self._is_busy
            and threading.get_ident() == self._thread
            and not is_traced()
        )

    def may_serve(self, name: str) -> bool:
        """Whether a call of a function may be served: it has not been found that none is to be."""
        decoder = self._decoders.get(name)
        return self.may_call() and (decoder is None or not decoder.is_off)

    def wants(self, redirected: Redirected, arguments: tuple[Any, ...]) -> bool:
        """Whether a call that is about to come would be served, or what it gives be looked at."""
        work = _guarded(redirected, _nothing, arguments, {})
        decoder = self._decoders.get(redirected.shown) or self._made(redirected.shown)
        return work is not None and decoder is not None and decoder.wants(work)

    @passed_over
    def call(self, name: str, work: Work) -> Any:
        """Return what a call gives. name: the function's, as a script writes it."""
        decoder = self._decoders.get(name) or self._made(name)
        if decoder is None:
            return work.make()
        self._is_busy = True
        try:
            return decoder.get(work)
        finally:
            self._is_busy = False

    def _made(self, name: str) -> Decoder | None:
        """Return a new decoder; None where none can be made."""
        with contextlib.suppress(Exception):  # ours
            self._decoders[name] = Decoder(self._desk, name)
        return self._decoders.get(name)


def wants_pixels_of(image: Any) -> bool:
    """Whether the pixels of a file that Pillow has opened are remembered, or to be: then it is to be
    loaded whole."""
    decoders = _active
    if decoders is None or not decoders.may_serve(IMAGE_LOAD.shown):
        return False
    return decoders.wants(IMAGE_LOAD, (image,))


def _nothing(*_arguments: Any) -> None:
    """In place of a function that is not to be called."""


def _end(held: "weakref.ref[Decoders]") -> None:
    """Switch off for good, in a process that a dataset has forked."""
    decoders = held()
    if decoders is not None:
        decoders._thread = 0


def restore() -> None:
    """Give all functions back their own code."""
    while _redirected:
        _, undo = _redirected.popitem()
        if undo is not None:
            undo()


def _redirect(redirected: Redirected, hook: Hook) -> Undo | None:
    owner: Any = sys.modules[redirected.module]
    *path, name = redirected.name.split(".")
    for each in path:
        owner = getattr(owner, each, None)
    made_in = getattr(getattr(owner, name, None), "__module__", None)
    if made_in is not None and not is_trusted(made_in):
        return None  # it is the script's
    return redirect(owner, name, hook)


def _serving(redirected: Redirected) -> Hook:
    @passed_over
    def hook(original: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        work = None
        decoders = _active
        if decoders is not None and decoders.may_serve(redirected.shown):
            work = _guarded(redirected, original, arguments, named)
        if decoders is None or work is None:
            held = getattr(arguments[0], "fp", None) if arguments else None  # an image's file
            value = original(*arguments, **named)
        else:
            held = work
            value = decoders.call(redirected.shown, work)
        named[LOCAL] = held
        return value

    return hook


def _guarded(
    redirected: Redirected, original: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> Work | None:
    root, _ = _version_of(redirected.module)
    if any(each.startswith(f"{root}.") for each in put_in()):
        return None  # the script has changed the library
    try:
        work = redirected.work_of(original, arguments, named)
        return work and work._replace(told=(_version_of(redirected.module), _around(), work.told))
    except Exception:  # of the arguments: the function itself will tell
        return None


def _version_of(module: str) -> tuple[str, str]:
    root = module.partition(".")[0]
    return root, str(getattr(sys.modules.get(root), "__version__", ""))


def _around() -> object:
    """Return what surrounds every call: settings of libraries, and the environment, but for what is
    of this terminal or job alone."""
    environment: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]  # 2 us, not 40
    return surroundings(), _environment(b"\0".join([*environment, *environment.values()]))


@functools.lru_cache(maxsize=4)
def _environment(_told: bytes) -> bytes:
    """_told: what the environment is at this moment."""
    told = repr(sorted(lasting_of(os.environ).items())).encode()
    return hashlib.blake2b(told, digest_size=16).digest()
