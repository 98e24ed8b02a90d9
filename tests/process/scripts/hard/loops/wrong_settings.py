"""Loaders that torch refuses: the same errors, at the same place."""

from torch.utils.data import DataLoader

for more in (
    {"num_workers": -1}, {"prefetch_factor": 2}, {"num_workers": 1, "prefetch_factor": -1}, {"timeout": -1},
    {"persistent_workers": True}, {"batch_size": 0}, {"shuffle": True, "sampler": [1]}, {"drop_last": True, "batch_size": None},
    {"num_workers": 1, "multiprocessing_context": "thread"}, {"multiprocessing_context": "fork"}, {"num_workers": 1.0},
    {"num_workers": True},
):  # fmt: skip
    try:
        print(more, [b.tolist() for b in DataLoader(range(4), **({"batch_size": 2} | more))])
    except Exception as error:
        print(more, type(error).__name__, str(error).strip().splitlines()[-1])
