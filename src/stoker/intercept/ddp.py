"""Attaches stoker's gradient hook to DDP models; without --gradients, only estimates its gain.

With `--gradients` a model has the hook until the script registers one of its own; without,
DDP's own timings are read and the estimate is printed once.

Promise: a model whose gradients are not compressed is DDP's alone, with one line that says why; all
ranks of a model decide alike. Without `--gradients` nothing of a model's is touched or sent.
"""

import functools
import inspect
import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stoker import __version__
from stoker.config import patterns_of
from stoker.intercept import run
from stoker.verify import probed
from stoker.verify.record import PROBE

if TYPE_CHECKING:
    from stoker.gradients.gate import Measured, Seen, TrialResult
    from stoker.gradients.hook import Hook
    from stoker.gradients.meeting import Meeting

_hooks: "weakref.WeakKeyDictionary[Any, Hook]" = weakref.WeakKeyDictionary()


def make(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap DDP's `__init__`: attach the hook with `--gradients`, only read timings without."""

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it is that one
        word = _word()
        meeting = word and _meet(word, inspect.signature(original), (self, *args), kwargs)
        original(self, *args, **kwargs)
        if meeting:
            _attach(self, meeting)
        elif not word:
            _count_exposed(self)
            if not run.settings.off:
                _watch(self)

    return __init__


def _word() -> str:
    """Return the settings that all ranks of a model must share for our hook; empty: no hook."""
    if PROBE in os.environ:  # the first model is surveyed, and no other
        return f"{__version__} probe {len(_hooks)}"
    if run.settings.gradients is None or run.settings.off:
        return ""
    return f"{__version__} {run.settings.gradients} {run.settings.gradient_codes}"


def register(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap `register_comm_hook`: our hook, if attached, gives way to the script's (torch 2.13)."""

    @functools.wraps(original)
    def register_comm_hook(self: Any, state: object, hook: Callable[..., Any]) -> None:
        ours = _hooks.get(self)
        if ours is None:
            return original(self, state, hook)
        self._check_comm_hook(hook)
        self.logger._set_comm_hook_name(hook.__qualname__)
        self._comm_hooks.append((hook, state))
        return _give_way(self, ours, state, hook)

    return register_comm_hook


def register_builtin(original: Callable[..., None]) -> Callable[..., None]:
    """Wrap `_register_builtin_comm_hook`, whose two kinds torch also has in Python."""

    @functools.wraps(original)
    def _register_builtin_comm_hook(self: Any, comm_hook_type: Any) -> None:
        ours = _hooks.get(self)
        if ours is None:
            return original(self, comm_hook_type)
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        name = str(comm_hook_type)
        self.logger._set_comm_hook_name(name)
        is_half = name.endswith("FP16_COMPRESS")
        hook = default_hooks.fp16_compress_hook if is_half else default_hooks.allreduce_hook
        return _give_way(self, ours, self.process_group, hook)

    return _register_builtin_comm_hook


def _give_way(model: Any, ours: "Hook", state: object, hook: Callable[..., Any]) -> None:
    ours.give_way(hook, state)
    what = "the script registered a communication hook of its own, which is used"
    _say(model.process_group, f"gradients: {what}")


def _say(group: Any, text: str, speaker: int = 0) -> None:
    """Print a line once for all ranks of the group, on the rank `speaker`."""
    if group.rank() == speaker:
        _tell(text)


def _tell(text: str) -> None:
    if PROBE in os.environ:
        probed.tell(text, is_found=False)
    else:
        run.say_once(text)


def _meet(word: str, signature: inspect.Signature, args: Any, kwargs: Any) -> "Meeting | None":
    """Tell the other ranks our settings before the collective that every `__init__` begins with."""
    try:
        asked = signature.bind(*args, **kwargs).arguments
    except TypeError:  # torch's own error follows
        return None
    if not asked.get("init_sync", True):
        return None
    try:
        from torch.distributed.distributed_c10d import _get_default_group

        from stoker.gradients import hook
        from stoker.gradients.meeting import Meeting

        hook.check_loops(asked["module"])  # what is missing shows before it is promised
        mesh = asked.get("device_mesh")
        group = asked.get("process_group") or (mesh and mesh.get_group(0)) or _get_default_group()
        return None if group.size() == 1 else Meeting(group, word)
    except Exception as error:
        if PROBE not in os.environ or not _hooks:
            _tell(f"gradients are left to DDP: {error}")
        return None


def _attach(model: Any, meeting: "Meeting") -> None:
    """Attach the hook or say why not. All ranks decide alike: they see the same model and words."""
    from stoker.gradients.hook import why_not

    name = type(model.module).__name__
    if PROBE in os.environ and (_hooks or meeting.others()):
        return  # another model is surveyed, or this one's ranks do not agree
    if reason := why_not(model):
        _say(meeting.group, f"gradients of a {name} are left to DDP: {reason}")
        return
    if others := meeting.others():
        speaker = min(set(range(meeting.group.size())) - set(others))
        ranks = ", ".join(map(str, others))
        reason = f"ranks {ranks} of its group run without it, or with other settings"
        _say(meeting.group, f"gradients of a {name} are left to DDP: {reason}", speaker)
        return
    hook = (_surveying if PROBE in os.environ else _compressing)(model, meeting)
    hook.attach()
    _hooks[model] = hook


def _compressing(model: Any, meeting: "Meeting") -> "Hook":
    from stoker.gradients.filters import unmatched
    from stoker.gradients.hook import compressing

    scheme, patterns = run.settings.gradients, patterns_of(run.settings.gradient_codes or "")
    assert scheme is not None
    if strange := unmatched(model.module, patterns):
        name = type(model.module).__name__
        _say(meeting.group, f"--gradient-codes: no parameter of a {name} matches {strange[0]!r}")

    def tell(verdict: "TrialResult | None") -> None:
        """Print the trial's result; called by the thread that issues the collectives."""
        if verdict is None or not verdict.is_coded:
            hook.counts.scheme = "fp32"
        _say(meeting.group, f"gradients: {_words(scheme, verdict)}")

    hook = compressing(model, meeting, scheme, patterns, tell)
    run.count_exposed(hook.exposed)
    run.recorder().exchanges(hook.counts)
    return hook


def _words(scheme: str, verdict: "TrialResult | None") -> str:
    if verdict is None:
        return f"{scheme} is dropped, for no bucket would gain by it on these links"
    what = (
        f"{scheme} stays" if verdict.is_coded else f"{scheme} is dropped, for it gains too little"
    )
    coded, plain = (f"{1e3 * s:.4g} ms" for s in (verdict.coded_s, verdict.plain_s))
    return f"{what}: a step took {coded} with it, {plain} without"


def _surveying(model: Any, meeting: "Meeting") -> "Hook":
    from stoker.gradients.gate import as_table
    from stoker.gradients.hook import surveying

    name = type(model.module).__name__

    def tell(found: "Measured") -> None:
        if meeting.group.rank() == 0:
            probed.tell(as_table(name, found), is_found=True)

    return surveying(model, meeting, run.waited_s, tell, probed.stop)


def _watch(model: Any) -> None:
    """Print once, on rank 0, what compression would gain; nothing if it cannot be used."""
    try:
        from stoker.gradients.hook import why_not

        if why_not(model) or model.process_group.rank() or model.process_group.size() == 1:
            return
        watch = _Observer(model)
        if watch.sent.frac < 1:
            run.watch(watch.look)
    except Exception:  # a model that DDP itself will not have, a library that is missing
        return


def _count_exposed(model: Any) -> None:
    """Have the share of its backward passes known that waits for other ranks, by DDP's own timings."""
    timed = _Timed(model)
    run.watch(timed.look)
    run.count_exposed(timed.share)


class _Timed:
    """Reads one model's DDP timings, for the share of its backward pass that waits for other ranks."""

    def __init__(self, model: Any) -> None:
        self._model: Callable[[], Any] = weakref.ref(model)
        self._thread = threading.get_ident()
        self._share = 0.0
        self._last = 0.0, 0.0  # of the step that was timed last
        self._waits_s = self._backward_s = 0.0

    def share(self) -> float:
        return self._share if self._model() is not None else 0.0

    def look(self) -> None:
        """Read them; only in the model's thread, which may hold DDP's lock on them."""
        model = self._model()
        if model is None or threading.get_ident() != self._thread:
            return
        try:
            from stoker.gradients.gate import seen

            now = seen(model._get_ddp_logging_data())
            timed = max(0.0, now.comm_s - now.overlap_s), now.backward_s
            if timed == self._last or not sum(timed):
                return  # it times the first ten steps, and then each hundredth
            if now.is_past_first:  # in which memory is touched, and buckets are built
                self._waits_s += timed[0]
                self._backward_s += timed[1]
            waits_s, backward_s = self._waits_s or timed[0], self._backward_s or timed[1]
            self._last, self._share = timed, waits_s / (waits_s + backward_s)
        except Exception:  # what cannot be read is not told
            self._model = _no_model


def _no_model() -> None:
    return None


class _Observer:
    """A reader of one model's DDP timings, until the model is gone or enough was seen."""

    def __init__(self, model: Any) -> None:
        from stoker.gradients.filters import sent_of

        self._model: Callable[[], Any] = weakref.ref(model)
        self.sent = sent_of(model.module)
        self._first: Seen | None = None
        self._thread = threading.get_ident()
        self._is_over = False

    def look(self) -> None:
        """Read DDP's timings; only in the model's thread, which may hold DDP's lock on them."""
        model = self._model()
        if self._is_over or model is None or threading.get_ident() != self._thread:
            return
        try:
            self._is_over = self._told(model)
        except Exception:  # what cannot be read is not told
            self._is_over = True

    def _told(self, model: Any) -> bool:
        from stoker.gradients.gate import outlook_of, seen, words

        if model._comm_hooks:  # the script's, registered since
            return True
        now = seen(model._get_ddp_logging_data(), "avg_")
        if self._first is None or not self._first.is_past_first:
            self._first = now
            return False
        found = outlook_of(self._first, now, self.sent)
        if found is not None:
            run.say_once(f"gradients: {words(found)}")
        return found is not None
