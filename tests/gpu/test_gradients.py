"""Compressed gradients on a GPU: the CPU's bytes, on a stream of their own, and nobody waits for them.

One GPU has one rank: what several do is tested on CPUs, by the same code (tests/unit/gradients). The
loops alone are compared there too, on the GPU where there is one (test_devices.py).
"""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from stoker.gradients.codes import Code
from stoker.gradients.filters import Coding
from stoker.gradients.on_stream import OnStream

LENGTH = 70_001
PATIENCE = timedelta(seconds=60)


def exchange_on(device, code):
    """Of one rank, and its parameter."""
    parameter = torch.nn.Parameter(torch.zeros(LENGTH, device=device))
    coding = Coding({id(parameter): code}, {id(parameter): 0}, LENGTH)
    if device == "cpu":
        group = dist.ProcessGroupGloo(dist.HashStore(), 0, 1, PATIENCE)
    else:
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = PATIENCE
        group = dist.ProcessGroupNCCL(dist.HashStore(), 0, 1, options)
    place = torch.device(device, 0) if device == "cuda" else torch.device(device)
    return OnStream(group, coding, None, place), [parameter], group


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("code", Code)
def test_buckets_are_averaged_as_on_a_cpu(code, dtype):
    """Three steps, so that what codes have lost comes back."""
    on_cpu, on_cuda = exchange_on("cpu", code), exchange_on("cuda", code)
    for step in range(3):
        generator = torch.Generator().manual_seed(step)
        values = torch.randn(LENGTH, generator=generator).to(dtype)
        there = values.cuda()
        for (exchange, parameters, _), buffer in ((on_cpu, values), (on_cuda, there)):
            exchange.exchange(parameters, buffer).wait()
        assert torch.equal(there.cpu(), values)
    on_cuda[2].shutdown()


def test_the_hooks_thread_waits_for_nothing():
    exchange, parameters, group = exchange_on("cuda", Code.INT4)
    buffer = torch.ones(LENGTH, device="cuda")
    exchange.exchange(parameters, buffer).wait()  # loops are compiled, a communicator is made
    torch.cuda.synchronize()
    torch.cuda._sleep(2_000_000_000)  # cycles: about a second
    busy = torch.cuda.Event()
    busy.record()
    future = exchange.exchange(parameters, buffer)
    assert not busy.query()
    future.wait()
    torch.cuda.synchronize()
    assert (buffer == 1).all()
    group.shutdown()
