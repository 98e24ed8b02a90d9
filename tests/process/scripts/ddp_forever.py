"""Steps of a DistributedDataParallel until it fails, or as many as are asked for.

usage: ddp_forever.py NUM_STEPS DIES_AT; under torchrun's variables. Kills itself before the backward
pass of step DIES_AT. Tells how it ends.
"""

import gc
import hashlib
import os
import signal
import sys
import traceback

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def tell(line):
    os.write(int(os.environ["TELL_FD"]), f"{line}\n".encode())


def train(num_steps, dies_at):
    """A hash of what was trained."""
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(300, 700), torch.nn.ReLU(), torch.nn.Linear(700, 10)),
        bucket_cap_mb=0.1,
    )
    for step in range(num_steps):
        model.zero_grad()
        output = model(torch.randn(8, 300))
        if step == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            output.square().mean().backward()
        except Exception as error:
            tell(f"failed {type(error).__name__}")
            raise
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.01 * parameter.grad
    bits = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    return hashlib.sha256(bits).hexdigest()


torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
try:
    tell(f"ends {train(int(sys.argv[1]), int(sys.argv[2]))}")
except Exception as error:
    traceback.clear_frames(error.__traceback__)
    raise
finally:
    # A group that is left has threads, which may abort a process that ends before them:
    # https://github.com/pytorch/pytorch/issues/190489
    gc.collect()
    dist.destroy_process_group()
