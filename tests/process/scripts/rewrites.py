"""A loop without workers whose step rewrites 400 MB in place: forks would double them."""

import time

import numpy as np
from torch.utils.data import DataLoader

BUFFER = np.zeros(400 << 20, np.uint8)


class Slow:
    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> int:
        end_s = time.thread_time() + 0.05
        while time.thread_time() < end_s:
            pass
        return index


if __name__ == "__main__":
    total = 0
    for k, batch in enumerate(DataLoader(Slow(), 2)):  # type: ignore[arg-type]
        BUFFER.fill(k)
        total += int(batch.sum()) + int(BUFFER[k])
    print(total)
