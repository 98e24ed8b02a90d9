"""`--gradients` in a DistributedDataParallel's life: our hook from its beginning, until the script
brings one of its own.

Promise: a model whose gradients are not compressed is DDP's alone, with one line that says why; all
ranks of a model decide alike.
"""

import functools
import inspect
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stoker import __version__
from stoker.config import patterns_of
from stoker.intercept import run

if TYPE_CHECKING:
    from stoker.gradients.gate import Verdict
    from stoker.gradients.hook import Hook
    from stoker.gradients.meeting import Meeting

_hooks: "weakref.WeakKeyDictionary[Any, Hook]" = weakref.WeakKeyDictionary()


def make(original: Callable[..., None]) -> Callable[..., None]:
    """`__init__`."""

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it is that one
        meeting = _meet(inspect.signature(original), (self, *args), kwargs)
        original(self, *args, **kwargs)
        if meeting is not None:
            _attach(self, meeting)

    return __init__


def register(original: Callable[..., None]) -> Callable[..., None]:
    """`register_comm_hook`: as DDP's own where none of ours is in the way (torch 2.13)."""

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
    """`_register_builtin_comm_hook`: its two kinds, as torch also has them in Python."""

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
    """Once for all ranks."""
    if group.rank() == speaker:
        run.say_once(text)


def _meet(signature: inspect.Signature, args: Any, kwargs: Any) -> "Meeting | None":
    """Tell the other ranks before the collective that every rank's `__init__` begins with."""
    scheme = run.settings.gradients
    try:
        asked = signature.bind(*args, **kwargs).arguments
    except TypeError:  # torch's own error follows
        return None
    if scheme is None or run.settings.off or not asked.get("init_sync", True):
        return None
    try:
        from torch.distributed.distributed_c10d import _get_default_group

        from stoker.gradients import hook
        from stoker.gradients.meeting import Meeting

        hook.check_loops(asked["module"])  # what is missing shows before it is promised

        mesh = asked.get("device_mesh")
        group = asked.get("process_group") or (mesh and mesh.get_group(0)) or _get_default_group()
        if group.size() == 1:
            return None
        return Meeting(group, f"{__version__} {scheme} {run.settings.gradient_codes}")
    except Exception as error:
        run.say_once(f"gradients are left to DDP: {error}")
        return None


def _attach(model: Any, meeting: "Meeting") -> None:
    """All ranks come to the same end here: each has seen the same model and the same words."""
    from stoker.gradients.hook import Hook, why_not

    scheme = run.settings.gradients
    assert scheme is not None
    name = type(model.module).__name__
    if reason := why_not(model):
        _say(meeting.group, f"gradients of a {name} are left to DDP: {reason}")
        return
    if others := meeting.others():
        speaker = min(set(range(meeting.group.size())) - set(others))
        ranks = ", ".join(map(str, others))
        reason = f"ranks {ranks} of its group run without it, or with other settings"
        _say(meeting.group, f"gradients of a {name} are left to DDP: {reason}", speaker)
        return

    def tell(verdict: "Verdict | None") -> None:
        """From the exchange's thread."""
        if verdict is None or not verdict.is_coded:
            hook.counts.scheme = "fp32"
        _say(meeting.group, f"gradients: {_words(scheme, verdict)}")

    hook = Hook(model, meeting, scheme, patterns_of(run.settings.gradient_codes or ""), tell)
    hook.attach()
    _hooks[model] = hook
    run.recorder().exchanges(hook.counts)


def _words(scheme: str, verdict: "Verdict | None") -> str:
    if verdict is None:
        return f"{scheme} is dropped, for no bucket would gain by it on these links"
    what = (
        f"{scheme} stays" if verdict.is_coded else f"{scheme} is dropped, for it gains too little"
    )
    coded, plain = (f"{1e3 * s:.4g} ms" for s in (verdict.coded_s, verdict.plain_s))
    return f"{what}: a step took {coded} with it, {plain} without"
