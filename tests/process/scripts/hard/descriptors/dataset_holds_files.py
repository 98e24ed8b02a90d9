"""The dataset holds open files, pipes, maps, a database and a lock; workers share or reopen them."""

import mmap
import os
import sqlite3
import threading
from pathlib import Path

import numpy as np
from torch.utils.data import DataLoader, Dataset


class Holds(Dataset):
    def __init__(self):
        Path("text").write_text("".join(f"{k:03d}\n" for k in range(12)))
        self.file, self.lock = Path("text").open("rb"), threading.Lock()
        self.map = mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_READ)
        self.array = np.memmap("array", "int32", "w+", shape=12)
        self.array[:] = range(12)
        self.pipe = os.pipe()
        os.write(self.pipe[1], b"x" * 100)
        self.database = None

    def __len__(self):
        return 12

    def __getitem__(self, index):
        if self.database is None:
            self.database = sqlite3.connect("base")
            self.database.execute("create table if not exists t (x)")
        with self.lock:
            (row,) = self.database.execute("select ?", (index,)).fetchone()
            text = os.pread(self.file.fileno(), 3, 4 * index)
        return (
            row,
            text,
            self.map[4 * index : 4 * index + 3],
            int(self.array[index]),
            os.read(self.pipe[0], 1),
        )


for workers in (0, 1, 2):
    dataset = Holds()
    print(list(DataLoader(dataset, None, num_workers=workers)))
    print(len(os.read(dataset.pipe[0], 200)))
    for fd in dataset.pipe:
        os.close(fd)
for name in ("text", "array", "base"):
    Path(name).unlink()
