"""Lists and applies what stoker replaces of torch and torchdata in the training process.

Promise: a target that does not look as known stays torch's, with one line that says so; every
patch can be undone. tests/unit/intercept/test_patches.py trips when a torch changes a target.
"""

import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stoker.config import Settings


@dataclass(frozen=True, slots=True)
class Patch:
    """A patch: module.name (one dot deep) becomes what `replacement` makes of the original."""

    module: str
    name: str
    signature: str  # its parameters in order; where `passes_on`, those that ours reads
    replacement: str  # "module:function" of ours; takes the original, returns the new one
    why: str
    made_of: tuple[str, ...] = ()  # names in its code, where ours does not call it but replaces it
    passes_on: bool = False  # ours passes all arguments on, also those that a later torch adds

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"

    def owner(self) -> Any:
        owner = importlib.import_module(self.module)
        for part in self.name.split(".")[:-1]:
            owner = getattr(owner, part)
        return owner

    @property
    def attribute(self) -> str:
        return self.name.rpartition(".")[2]

    def target(self, owner: Any = None) -> Callable[..., Any]:
        """Return torch's own function, or ours if it is installed. Raises AttributeError.

        owner: if its module is not fully imported yet.
        """
        found: Callable[..., Any] = vars(owner or self.owner())[self.attribute]
        return found

    def is_known(self, owner: Any = None) -> bool:
        try:
            function = inspect.unwrap(self.target(owner))
            names = list(inspect.signature(function).parameters)
        except Exception:  # no such name, or nothing that has a signature
            return False
        wanted = self.signature.split(", ")
        has_all = set(wanted) <= set(names) if self.passes_on else wanted == names
        return has_all and self.made_of in ((), function.__code__.co_names)

    def apply(self, owner: Any) -> Callable[..., Any]:
        """Put the replacement in place. Returns what was there."""
        original = self.target(owner)
        module, _, function = self.replacement.partition(":")
        setattr(owner, self.attribute, getattr(importlib.import_module(module), function)(original))
        return original


_LOADER = "torch.utils.data.dataloader"
PATCHES = (
    Patch(
        _LOADER, "DataLoader._get_iterator", "self",
        "stoker.intercept.loader:get_iterator", why="hand out our batches",
    ),
    Patch(
        _LOADER, "DataLoader.__iter__", "self",
        "stoker.intercept.loader:iterate", why="see the classes that override _get_iterator",
    ),
    Patch(
        _LOADER, "_MultiProcessingDataLoaderIter.__init__", "self, loader",
        "stoker.intercept.loader:by_name", why="be the iterator of who asks for it by its name",
    ),
    Patch(
        _LOADER, "_BaseDataLoaderIter.__next__", "self",
        "stoker.intercept.loader:next_batch", why="count, time and hash what is delivered",
    ),
    Patch(
        _LOADER, "_BaseDataLoaderIter._next_index", "self",
        "stoker.intercept.loader:next_index", why="count the samples that are asked for",
    ),
    Patch(
        "torch.utils.data.sampler", "RandomSampler.__iter__", "self",
        "stoker.intercept.shuffle:shuffle", why="shuffle without lists of all indices",
        made_of=(
            "len", "data_source", "generator", "int", "torch", "empty", "int64", "random_", "item",
            "Generator", "manual_seed", "replacement", "range", "num_samples", "randint", "tolist",
            "randperm",
        ),
    ),
)  # fmt: skip

_DDP = "torch.nn.parallel.distributed"
# Of gradients.
PATCHES_OF_DDP = (
    Patch(
        _DDP, "DistributedDataParallel.__init__",
        "self, module, init_sync, process_group, device_mesh",
        "stoker.intercept.ddp:make", why="register the hook that compresses gradients",
        passes_on=True,
    ),
    Patch(
        _DDP, "DistributedDataParallel.register_comm_hook", "self, state, hook",
        "stoker.intercept.ddp:register", why="give way to the script's hook",
        made_of=(
            "_check_comm_hook", "logger", "AssertionError", "_set_comm_hook_name", "__qualname__",
            "_comm_hooks", "append", "dist", "_register_comm_hook", "reducer",
        ),
    ),
    Patch(
        _DDP, "DistributedDataParallel._register_builtin_comm_hook", "self, comm_hook_type",
        "stoker.intercept.ddp:register_builtin", why="give way to the script's hook",
        made_of=(
            "logger", "AssertionError", "_set_comm_hook_name", "str", "dist",
            "_register_builtin_comm_hook", "reducer",
        ),
    ),
)  # fmt: skip

_STATEFUL = "torchdata.stateful_dataloader.stateful_dataloader"
# Of classes that a script may bring along or not: applied when they are built on DataLoader.
PATCHES_OF_OTHERS = {
    f"{_STATEFUL}.StatefulDataLoader": (
        Patch(
            _STATEFUL, "StatefulDataLoader._get_iterator", "self",
            "stoker.intercept.loader:get_stateful_iterator", why="hand out our batches",
            made_of=(
                "num_workers", "_StatefulSingleProcessDataLoaderIter", "next_iter_state",
                "check_worker_number_rationality", "_StatefulMultiProcessingDataLoaderIter",
            ),
        ),
        Patch(
            _STATEFUL, "StatefulDataLoader.__iter__", "self",
            "stoker.intercept.loader:iterate", why="see each epoch of a persistent iterator",
        ),
    ),
}  # fmt: skip

_originals: dict[Patch, tuple[Any, Callable[..., Any]]] = {}  # with its owner
HOOK = "__init_subclass__"  # of DataLoader: how those classes are heard of
_heard: list[type[Any]] = []  # classes that have our hook: torch's DataLoader


def install(settings: Settings) -> None:
    """Apply every patch whose target is known. Idempotent; settings hold from now on."""
    from torch.utils.data.dataloader import DataLoader

    from stoker.intercept import run

    run.begin(settings)
    try:
        for patch in PATCHES:
            _apply(patch)
        if not _heard:
            _hear_of_classes(DataLoader)
    except Exception:
        restore()  # some without the others would be neither torch nor stoker
        raise


def install_ddp() -> None:
    """Apply the patches of DDP, all of them or none. Idempotent."""
    from stoker.intercept import run

    left = unknown(PATCHES_OF_DDP)
    if left:
        if run.settings.gradients is None:  # nothing was asked for, and nothing is missed
            return
        run.say_once(f"{left[0]} looks different in this torch: gradients are left to DDP")
        return
    for patch in PATCHES_OF_DDP:
        _apply(patch)


def unknown(among: Sequence[Patch] = ()) -> list[Patch]:
    """Return the patches whose targets look different in this torch; of all, if none are named."""
    among = among or (*PATCHES, *PATCHES_OF_DDP)
    return [patch for patch in among if patch not in _originals and not patch.is_known()]


def left_by_version() -> list[str]:
    """Return what stoker leaves to this torch because it looks different, with what that is for."""
    return [f"{patch} ({patch.why})" for patch in unknown()]


def _apply(patch: Patch, owner: Any = None) -> None:
    from stoker.intercept import run

    if patch in _originals:
        return
    if patch.is_known(owner):
        owner = owner or patch.owner()
        _originals[patch] = owner, patch.apply(owner)
    else:
        package = patch.module.partition(".")[0]
        run.say_once(f"{patch} looks different in this {package}: left as it is")


def _hear_of_classes(loader: type[Any]) -> None:
    """Patch known subclasses of DataLoader when they are defined, through `__init_subclass__`.

    So no import hook has to wait for other packages, for all to see. loader: torch's, bound here,
    for a script may put another in its place.
    """

    def hear(kind: type[Any], /, **keywords: Any) -> None:
        super(loader, kind).__init_subclass__(**keywords)
        _patch_class(kind)

    setattr(loader, HOOK, classmethod(hear))
    _heard.append(loader)
    for kind in loader.__subclasses__():
        _patch_class(kind)


def _patch_class(kind: type[Any]) -> None:
    """Patch a class, inside the script's class statement: no error of ours may leave it."""
    try:
        for patch in PATCHES_OF_OTHERS.get(f"{kind.__module__}.{kind.__qualname__}", ()):
            _apply(patch, kind)
    except Exception as error:
        from stoker.intercept import run

        run.say_once(f"{kind.__qualname__} is left as it is: {error}")


def are_applied() -> bool:
    return bool(_originals)


def restore() -> None:
    """Undo every patch and end the run."""
    from stoker.intercept import run

    run.end()
    for patch, (owner, original) in _originals.items():
        setattr(owner, patch.attribute, original)
    _originals.clear()
    while _heard:
        delattr(_heard.pop(), HOOK)
