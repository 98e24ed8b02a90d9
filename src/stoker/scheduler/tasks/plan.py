"""Numbers the sampler's index lists as tasks, and tells which samplers may be asked ahead.

Promise: task k is the k-th index list of the loader's epoch, and belongs to chain k mod V.
Pure: samplers are recognised by name, torch is not imported.
"""

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Task:
    """A batch to be made. body: the encoded index list, as it travels."""

    id: int
    chain: int
    body: bytes = field(repr=False)
    num_deaths: int = 0  # processes that died while this task was theirs
    epoch: int = 0  # counted from iter(), on living workers
    wants_state: bool = False  # the answer shall carry the worker's state after it


# Samplers that draw when they are first asked, and then only from a generator of their own, so that
# taking later indices early changes nothing that anybody can see. Source: torch/utils/data/sampler.py and
# distributed.py, 2.13.
_PRIVATE = {
    ("torch.utils.data.sampler", "SequentialSampler"),
    ("torch.utils.data.sampler", "RandomSampler"),
    ("torch.utils.data.sampler", "WeightedRandomSampler"),
    ("torch.utils.data.distributed", "DistributedSampler"),
}
_BATCHED = ("torch.utils.data.sampler", "BatchSampler")


def may_run_ahead(sampler: object) -> bool:
    """Whether indices may be drawn earlier than torch would draw them."""
    name = type(sampler).__module__, type(sampler).__qualname__
    if name == _BATCHED:
        return may_run_ahead(getattr(sampler, "sampler", None))
    return name in _PRIVATE and getattr(sampler, "generator", None) is None
