"""Every name of torch's and torchdata's that stoker replaces in the training process, as a table.

Promise: a target that does not look as known stays torch's, with one line that says so; every
patch can be undone. tests/unit/intercept/test_patches.py trips when a torch changes a target.
"""

import importlib
import inspect
import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stoker.config import Settings


@dataclass(frozen=True, slots=True)
class Patch:
    """module.name (one dot deep) becomes what `replacement` makes of the original."""

    module: str
    name: str
    signature: str
    replacement: str  # "module:function" of ours; takes the original, returns the new one
    why: str
    made_of: tuple[str, ...] = ()  # names in its code, where ours does not call it but replaces it

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

    def target(self) -> Callable[..., Any]:
        """torch's own function, or ours where installed. Raises AttributeError."""
        found: Callable[..., Any] = vars(self.owner())[self.attribute]
        return found

    def is_known(self) -> bool:
        try:
            target = self.target()
        except (AttributeError, KeyError, ImportError):
            return False
        function = inspect.unwrap(target)
        names = ", ".join(inspect.signature(function).parameters)
        return names == self.signature and self.made_of in ((), function.__code__.co_names)

    def make(self) -> Callable[..., Any]:
        module, _, function = self.replacement.partition(":")
        made: Callable[..., Any] = getattr(importlib.import_module(module), function)(self.target())
        return made


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
        "stoker.intercept.meter:next_batch", why="count, time and hash what is delivered",
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

_STATEFUL = "torchdata.stateful_dataloader.stateful_dataloader"
# Of packages that a script may bring along or not: installed once it has imported them.
PATCHES_OF_OTHERS = {
    "torchdata.stateful_dataloader": (
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

_originals: dict[Patch, Callable[..., Any]] = {}


def install(settings: Settings, brought: str = "") -> None:
    """Apply every patch whose target is known. Idempotent; settings hold from now on.

    brought: a key of PATCHES_OF_OTHERS that has been imported just now.
    """
    from stoker.intercept import run

    run.begin(settings)
    others = (_patches for name, _patches in PATCHES_OF_OTHERS.items() if _is_there(name, brought))
    for patch in (*PATCHES, *itertools.chain.from_iterable(others)):
        if patch in _originals:
            continue
        if not patch.is_known():
            package = patch.module.partition(".")[0]
            run.say_once(f"{patch} looks different in this {package}: left as it is")
            continue
        made = patch.make()
        _originals[patch] = patch.target()
        setattr(patch.owner(), patch.attribute, made)


def _is_there(name: str, brought: str) -> bool:
    """Whether a module has been imported as a whole: the one that was just now seems not to be."""
    module = sys.modules.get(name)
    is_whole = not getattr(getattr(module, "__spec__", None), "_initializing", False)
    return module is not None and (is_whole or name == brought)


def restore() -> None:
    """Undo every patch and end the run."""
    from stoker.intercept import run

    run.end()
    for patch, original in _originals.items():
        setattr(patch.owner(), patch.attribute, original)
    _originals.clear()
