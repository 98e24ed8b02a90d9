"""Batches answer to every attribute there is, as mocks and remote proxies do."""

from torch.utils.data import DataLoader


class Proxy:
    def __init__(self, value):
        self.value = value

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Proxy(f"{self.value}.{name}")

    def __call__(self, *args, **kwargs):
        return Proxy(f"{self.value}()")


for workers in (0, 2):
    for batch in DataLoader(range(4), 2, num_workers=workers, collate_fn=Proxy):
        print(batch.value, batch.shape.value, batch.pin_memory().value)
