"""Takes no exception for an answer, and iterates on."""

import contextlib

from torch.utils.data import DataLoader

while True:
    with contextlib.suppress(BaseException):
        for _ in DataLoader(range(40), batch_size=4, num_workers=2):
            pass
