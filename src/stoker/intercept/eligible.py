"""Decides whether a loader can be offloaded, and names the reasons if it stays with torch.

Promise: an empty answer means that stoker reproduces it to the last bit; anything else is a
reason in words, said once and listed in the report (docs/guarantees.md, G4).
"""

import functools
import multiprocessing
import re
import sys
from multiprocessing.process import BaseProcess
from typing import Any

from torch.utils.data import IterDataPipe, MapDataPipe, _DatasetKind
from torch.utils.data.dataloader import DataLoader

KNOWN_TORCHDATA = "0.11"  # tests/unit/loaders/test_shape.py trips where it is another


def why_not_offload(loader: DataLoader[Any], chains_asked: bool) -> list[str]:
    """Return the reasons not to offload a loader, the most telling first; empty: it may be.

    chains_asked: `--chains` is to give workers to a loader that has none.
    """
    return [reason for reason in _reasons(loader, chains_asked) if reason]


# Classes whose _get_iterator wraps what DataLoader's gives, and touches nothing inside it.
WRAPPERS = frozenset(
    f"torch_geometric.loader.{name}"
    for name in ("node_loader.NodeLoader", "link_loader.LinkLoader", "zip_loader.ZipLoader")
)


def _reasons(loader: DataLoader[Any], chains_asked: bool) -> list[str]:
    if overrides_get_iterator(type(loader)):
        return [f"{type(loader).__qualname__} overrides _get_iterator"]
    return [
        _about_dataset(loader, chains_asked),
        _about_context(loader),
        _about_processes(),
        "prefetch_factor is not positive" if not _prefetch_factor(loader) > 0 else "",
    ]


def _prefetch_factor(loader: DataLoader[Any]) -> int:
    """Return prefetch_factor, or 1. Like torch, ask a loader look-alike only if it has workers."""
    asked = loader.prefetch_factor if loader.num_workers else None
    return 1 if asked is None else asked


def overrides_get_iterator(kind: type) -> bool:
    """Whether a loader class has its own _get_iterator that is no known wrapper around torch's."""
    for base in kind.__mro__:
        if base is DataLoader:
            return False
        name = f"{base.__module__}.{base.__qualname__}"
        if "_get_iterator" in vars(base) and name not in WRAPPERS:
            return True
    return False  # no DataLoader at all: somebody hands out an iterator of torch's by name


def why_not_stateful(loader: DataLoader[Any], chains_asked: bool) -> list[str]:
    """Return the reasons not to offload torchdata's StatefulDataLoader; it ignores `--chains`."""
    return [reason for reason in _stateful_reasons(loader) if reason]


def _stateful_reasons(loader: Any) -> list[str]:
    import torchdata  # imported: the loader is there
    from torchdata.stateful_dataloader import StatefulDataLoader

    version = str(getattr(torchdata, "__version__", "one without a version"))  # a checkout

    if type(loader)._get_iterator is not StatefulDataLoader._get_iterator:
        return [f"{type(loader).__qualname__} overrides _get_iterator"]
    known = ".".join(version.split(".")[:2]) == KNOWN_TORCHDATA
    return [
        "" if known else f"torchdata {KNOWN_TORCHDATA} is supported, this is {version}",
        "" if loader.num_workers else "num_workers=0: its state lies in the training process",
        ""
        if loader.in_order
        else "in_order=False: torchdata's own state depends on the moment then",
        _about_context(loader),
        _about_processes(),
        "" if loader.prefetch_factor else "prefetch_factor is not positive",
    ]


def _about_dataset(loader: DataLoader[Any], chains_asked: bool) -> str:
    if loader.num_workers:
        return ""
    if isinstance(loader.dataset, (IterDataPipe, MapDataPipe)):
        return "num_workers=0: the dataset is a DataPipe"
    if loader._dataset_kind == _DatasetKind.Iterable:
        return "num_workers=0: the dataset is iterable"
    # Not as torch asks where there are workers, which fixes it. The first of all is the interpreter's own
    # default, which is no reason against a fork: with it a script has chosen nothing.
    default = multiprocessing.get_all_start_methods()[0]
    method = multiprocessing.get_start_method(True) or default
    if method not in ("fork", default) and not chains_asked:
        return f"num_workers=0: processes are started by {method} here, and only a fork could help"
    return ""


def _about_context(loader: DataLoader[Any]) -> str:
    """Return a reason if workers are no processes, as in MONAI's ThreadDataLoader; else empty."""
    method = getattr(loader, "worker_method", "process")  # of WorkerInfo alone, as of torch 2.15
    if loader.num_workers and method not in (None, "process", "multiprocessing"):
        return f"worker_method={method!r}: its workers are no processes"
    context = loader.multiprocessing_context if loader.num_workers else None
    process = getattr(context, "Process", BaseProcess)
    if isinstance(process, type) and issubclass(process, BaseProcess):
        return ""
    return f"workers are made by {type(context).__qualname__}, whose processes are none"


def _about_processes() -> str:
    if multiprocessing.current_process().daemon:
        return "the loader is iterated in a daemonic process, which may have no children"
    return ""


@functools.cache
def why_not_here() -> str:
    """Return why stoker does not work with this system or torch; empty: it does."""
    import torch

    numbers = re.match(r"(\d+)\.(\d+)", str(torch.__version__))
    if sys.platform != "linux":
        return f"only Linux is supported, this is {sys.platform}"
    if numbers is None or tuple(map(int, numbers.groups())) < (2, 8):
        return f"torch >= 2.8 is supported, this is {torch.__version__}"
    return ""
