"""Logging with a file handler, a queue and a lock that the trainer holds when workers start."""

import logging
import logging.handlers
import queue
from pathlib import Path

from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("train")
log.setLevel(logging.INFO)
log.addHandler(logging.FileHandler("log"))
log.addHandler(logging.handlers.QueueHandler(queue.Queue()))


class Logs(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        log.info("sample %d", index)
        return index


for _ in range(2):
    for handler in log.handlers:
        handler.acquire()
    iterator = iter(DataLoader(Logs(), 2, num_workers=1))
    for handler in log.handlers:
        handler.release()
    for batch in iterator:
        pass
    del iterator
    log.info("epoch")
print(
    Path("log").read_text().count("sample"),
    log.handlers[1].queue.qsize(),
    len(logging.root.handlers),
)
Path("log").unlink()
