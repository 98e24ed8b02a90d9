"""Samples run programs and read their output, fork and wait, and may not have daemons' children."""

import multiprocessing as mp
import os
import subprocess

from torch.utils.data import DataLoader, Dataset


class Runs(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index % 4 == 0:
            return subprocess.run(
                ["echo", str(index)], capture_output=True, text=True, check=True
            ).stdout
        if index % 4 == 1:
            return os.popen(f"exit {index}").close()
        if index % 4 == 2:
            pid = os.fork()
            if not pid:
                os._exit(index)
            return os.waitstatus_to_exitcode(os.wait()[1])
        try:
            process = mp.get_context("fork").Process(target=print)
            process.start()
            process.join()
            return process.exitcode
        except AssertionError as error:
            return str(error)


for workers in (1, 2):
    print(list(DataLoader(Runs(), None, num_workers=workers)))
