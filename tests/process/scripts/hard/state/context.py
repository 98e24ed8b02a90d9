"""Context variables, thread-locals and decimal contexts of the trainer, as workers see them."""

import contextvars
import decimal
import threading

import numpy as np
from torch.utils.data import DataLoader, Dataset

variable, local = contextvars.ContextVar("variable", default="unset"), threading.local()


class Asks(Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return (
            variable.get(),
            getattr(local, "x", None),
            decimal.getcontext().prec,
            np.geterr()["divide"],
            threading.main_thread() is threading.current_thread(),
        )


def loop():
    for workers in (0, 2):
        print(list(DataLoader(Asks(), None, num_workers=workers)), variable.get())


variable.set("of main")
local.x = 1
decimal.getcontext().prec = 5
np.seterr(divide="raise")
loop()
contextvars.copy_context().run(loop)
thread = threading.Thread(target=loop)
thread.start()
thread.join()
