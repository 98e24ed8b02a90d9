"""Trains in steps whose parts take a known time, and tells how long each part took.

usage: split.py PARTS STEPS [END]; PARTS: seconds of a step as part=seconds,...; of data (a dataset that sleeps; iter() counts too), copy (a
device's stand-in), other (the script itself), model (a module that sleeps), ranks (the other rank comes so much later to its
backward pass; under torchrun), epoch (no seconds: so many steps, and all ranks meet after them), after (the last step). END: SIGKILL ends the process at the end.
"""

import contextlib
import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

torch.set_num_threads(1)
PARTS = {part: float(s) for part, s in (each.split("=") for each in sys.argv[1].split(","))}
NUM_STEPS = int(sys.argv[2])
took = dict.fromkeys(("data", "copy", "other", "model", "ranks"), 0.0)


class Slow(list):
    def __getitem__(self, i):
        time.sleep(PARTS.get("data", 0))
        return torch.ones(8)


class Device:
    """A batch, whose copy to a device takes time in compiled code."""

    to = staticmethod(time.sleep)


class Sleeps(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x):
        time.sleep(PARTS.get("model", 0))
        return self.layer(x).sum()


def timed(part, call, *args):
    began = time.monotonic()
    result = call(*args)
    took[part] += time.monotonic() - began
    return result


if "copy" in PARTS:
    torch.cuda.is_initialized = lambda: True
model, is_late = Sleeps(), False
if "ranks" in PARTS:
    dist.init_process_group("gloo")
    is_late = dist.get_rank() == 1
    model = torch.nn.parallel.DistributedDataParallel(model)
    for _ in range(
        2
    ):  # before DDP has timed a step, nobody knows what of it is waiting for other ranks
        loss = model(torch.ones(8))
        time.sleep(PARTS["ranks"] if is_late else 0)
        loss.backward()
if os.environ.get("TELL_FD"):
    with contextlib.suppress(OSError):  # torchrun's ranks do not have it
        os.write(int(os.environ["TELL_FD"]), b"in the loop\n")
num_of_epoch = int(PARTS.get("epoch", NUM_STEPS))
loader = DataLoader(Slow(range(num_of_epoch)), batch_size=1)
for step in range(NUM_STEPS):
    if step % num_of_epoch == 0:
        batches = timed("data", iter, loader)
    batch = timed("data", next, batches)
    if "copy" in PARTS:
        began = time.monotonic()
        Device.to(PARTS["copy"])
        took["copy"] += time.monotonic() - began
    loss = timed("model", model, batch)
    if is_late:
        time.sleep(PARTS["ranks"])
    timed("ranks" if "ranks" in PARTS else "model", loss.backward)
    timed("other", time.sleep, PARTS.get("other", 0))
    if "epoch" in PARTS and step % num_of_epoch == num_of_epoch - 1:
        next(batches, None)  # its end
        dist.barrier()
next(batches, None)  # their end
time.sleep(PARTS.get("after", 0))
if not is_late:
    print(json.dumps(took), flush=True)
if "ranks" in PARTS:
    dist.destroy_process_group()
if "SIGKILL" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
