"""Checks that all ranks compress a model's gradients alike, and makes their own process group.

Promise: all ranks come to the same answer, and none waits for another: each says what it will do
before DDP's own first collective, and reads what the others said after it.
"""

import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.distributed_c10d import _get_process_group_store

_num_models: "weakref.WeakKeyDictionary[Any, int]" = weakref.WeakKeyDictionary()


class Meeting:
    """The ranks of one model; they agree if all say the same `word`. group: DDP's."""

    def __init__(self, group: Any, word: str) -> None:
        self.group, self._word = group, word
        number = _num_models[group] = _num_models.get(group, 0) + 1
        self._store = PrefixStore(f"stoker/gradients/{number}", _get_process_group_store(group))
        self._store.set(f"rank {group.rank()}", word)

    def others(self) -> list[int]:
        """Return the ranks of the group that have said something else, or nothing."""
        words = {rank: f"rank {rank}" for rank in range(self.group.size())}
        if self._store.check(list(words.values())):
            found = self._store.multi_get(list(words.values()))
        else:
            found = [self._store.get(k) if self._store.check([k]) else b"" for k in words.values()]
        return [rank for rank, said in enumerate(found) if said != self._word.encode()]

    def own_group(self, device: torch.device) -> Any:
        """Make a group of the same ranks that nothing else knows of.

        gloo's waits for all of them; NCCL makes its communicator with the first collective.
        Not by `new_group`: it counts a process's groups into the next one's name, so that later
        groups of the script's could miss each other.
        """
        timeout = self.group._get_backend(device).options._timeout
        rank, size = self.group.rank(), self.group.size()
        if device.type == "cpu":
            return dist.ProcessGroupGloo(self._store, rank, size, timeout)
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timeout
        return dist.ProcessGroupNCCL(self._store, rank, size, options)
