"""Trains small models as DistributedDataParallel, case by case, and saves what became of them.

usage: ddp_cases.py FOLDER CASE...; under torchrun. FOLDER/CASE.RANK holds the gradients of every
step, or what else the case gives; FOLDER/told.RANK what was said in words. With ON_STREAM gradients
are exchanged as on an accelerator.
"""

import contextlib
import gc
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

NUM_STEPS = 4
told = []  # what is not gradients
torch.set_num_threads(1)


class Net(torch.nn.Module):
    """Several buckets, a parameter of a ragged size, one that may go unused."""

    def __init__(self, num_in=64):
        super().__init__()
        self.first = torch.nn.Linear(num_in, 173)
        self.norm = torch.nn.LayerNorm(173)
        self.second = torch.nn.Linear(173, 401)
        self.aside = torch.nn.Linear(401, 401)
        self.third = torch.nn.Linear(401, 300)
        self.head = torch.nn.Linear(300, 10)

    def forward(self, x, aside=True):
        x = torch.relu(self.norm(self.first(x)))
        x = torch.relu(self.second(x))
        if aside:
            x = torch.relu(self.aside(x))
        return self.head(torch.relu(self.third(x)))


def made(net=None, dtype=torch.float32, **kwargs):
    torch.manual_seed(1)
    kwargs = {"bucket_cap_mb": 0.25} | kwargs
    return DistributedDataParallel((net or Net()).to(dtype), **kwargs)


def inputs(step, part=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1000 * dist.get_rank() + 10 * step + part)
    return torch.randn(16, 64, generator=generator).to(dtype)


def loss_of(output):
    return (output.float() ** 2).mean() + output.float().sin().sum() / 100


def gradients(model):
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def steps(model, num=NUM_STEPS, dtype=torch.float32, forward=None):
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    seen = []
    for step in range(num):
        optimiser.zero_grad()
        x = inputs(step, dtype=dtype)
        loss_of(forward(model, x, step) if forward else model(x)).backward()
        seen.append(gradients(model))
        optimiser.step()
    return seen


def plainly():
    return steps(made())


def in_views():
    return steps(made(gradient_as_bucket_view=True))


def unused():
    model = made(find_unused_parameters=True)
    return steps(model, forward=lambda m, x, step: m(x, aside=step % 2 == dist.get_rank() % 2))


def static():
    """One parameter is never used."""
    return steps(made(static_graph=True), forward=lambda m, x, step: m(x, aside=False))


def accumulated():
    """Four parts without a sync, but for the last."""
    model, seen = made(), []
    for step in range(2):
        model.zero_grad()
        for part in range(4):
            with model.no_sync() if part < 3 else contextlib.nullcontext():
                loss_of(model(inputs(step, part))).div(4).backward()
        seen.append(gradients(model))
    return seen


def at_once():
    """The same samples as `accumulated`, as one batch each."""
    model, seen = made(), []
    for step in range(2):
        model.zero_grad()
        parts = [loss_of(model.module(inputs(step, part))) for part in range(4)]
        whole = torch.cat([inputs(step, part) for part in range(4)])
        del parts
        output = model(whole)
        torch.stack([loss_of(each) for each in output.split(16)]).mean().backward()
        seen.append(gradients(model))
    return seen


def two_models():
    first, second = made(), made(torch.nn.Sequential(torch.nn.Linear(64, 64), Net()))
    both = []
    for step in range(NUM_STEPS):
        first.zero_grad(), second.zero_grad()
        (loss_of(second(inputs(step))) + loss_of(first(inputs(step, 1)))).backward()
        both.append(gradients(first) + gradients(second))
    return both


def bfloat16():
    return steps(made(dtype=torch.bfloat16), dtype=torch.bfloat16)


def half():
    return steps(made(dtype=torch.float16), dtype=torch.float16)


def sparse():
    """A bucket with a sparse gradient, and the others."""
    net = torch.nn.Sequential(torch.nn.Embedding(500, 64, sparse=True), Net())
    model, seen = made(net), []
    for step in range(NUM_STEPS):
        model.zero_grad()
        words = torch.arange(16) + 16 * dist.get_rank() + step
        loss_of(model(words)).backward()
        seen.append([net[0].weight.grad.coalesce().to_dense()])
    return seen


def double():
    return steps(made(dtype=torch.float64), dtype=torch.float64)


def subgroup():
    """Of the first two ranks; the script's own groups are made before and after."""
    everybody = dist.new_group()
    pair = dist.new_group([0, 1])
    seen = []
    if dist.get_rank() < 2:
        model = made(process_group=pair)
        seen = steps(model)
        # With torch 2.15 the groups that all ranks make after such a one wait for each other for ever.
        is_new = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)
        local = pair if is_new else dist.new_group([0, 1], use_local_synchronization=True)
        ones = torch.ones(3)
        dist.all_reduce(ones, group=local)
        seen.append([ones])
    dist.barrier(everybody)
    late = dist.new_group(list(range(dist.get_world_size())), use_local_synchronization=False)
    dist.barrier(late)
    return seen


def foreign():
    """The script's own collectives, within the backward pass as well."""
    model, reduced = made(), []

    def hook(gradient):
        mine = gradient.flatten()[:5].clone()
        dist.all_reduce(mine)
        reduced.append(mine)

    model.module.third.weight.register_hook(hook)
    for step in range(NUM_STEPS):
        model.zero_grad()
        loss = loss_of(model(inputs(step)))
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        loss.backward()
        gathered = [torch.zeros(3) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, torch.full((3,), float(dist.get_rank())))
        reduced += [mean, *gathered]
    return [reduced]


def till_the_verdict():
    """More steps than a trial takes, at most."""
    return steps(made(), 40)[-2:]


def from_a_loader():
    """More steps than are looked at: DDP times the first ten, and then each hundredth."""
    samples = TensorDataset(torch.cat([inputs(step % 50) for step in range(450)]))
    model = made()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    for (x,) in DataLoader(samples, 16, num_workers=1):
        optimiser.zero_grad()
        loss_of(model(x)).backward()
        optimiser.step()
    return [gradients(model)]


def own_hook():
    model = made()
    model.register_comm_hook(None, fp16_compress_hook)
    return steps(model)


def late_hook():
    """After an evaluation, as scripts do."""
    model = made()
    with torch.no_grad():
        model(inputs(0))
    model.register_comm_hook(None, fp16_compress_hook)
    return [*steps(model), [torch.tensor(len(model._comm_hooks))]]


def builtin_hook():
    model = made()
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    return steps(model)


def second_hook():
    model = made()
    model.register_comm_hook(None, fp16_compress_hook)
    try:
        model.register_comm_hook(None, fp16_compress_hook)
    except RuntimeError as error:
        told.append(str(error).splitlines()[0])
    return steps(model)


def wrong_hook():
    model = made()
    try:
        model.register_comm_hook(None, 1)
    except TypeError as error:
        told.append(str(error))
    return []


def joined(**kwargs):
    model, seen = made(), []
    with model.join(**kwargs):
        for step in range(2 + dist.get_rank()):
            model.zero_grad()
            loss_of(model(inputs(step))).backward()
            seen.append(gradients(model))
    return [*seen, list(model.parameters())]


def joined_by_effective():
    return joined(divide_by_initial_world_size=False)


def not_finite():
    """One rank's loss is; a GradScaler would skip that step."""
    model, seen = made(), []
    for bad in (float("nan"), float("inf"), 1.0):
        model.zero_grad()
        loss = loss_of(model(inputs(0)))
        (loss * (bad if dist.get_rank() == 1 else 1.0)).backward()
        seen.append(gradients(model))
    return seen


def gone():
    """The model goes, and what was ours with it."""
    import threading

    steps(made(), 2)
    gc.collect()
    told.append(sorted(thread.name for thread in threading.enumerate()))
    return []


def exchange_on_stream():
    from stoker.gradients import hook
    from stoker.gradients.on_stream import OnStream

    hook.exchange_on = lambda device, *others: OnStream(*others, device)


def main(folder, *cases):
    dist.init_process_group("gloo")
    if "ON_STREAM" in os.environ:
        exchange_on_stream()
    for case in cases:
        found = globals()[case]()
        torch.save(found, Path(folder, f"{case}.{os.environ['RANK']}"))
        dist.barrier()
    Path(folder, f"told.{os.environ['RANK']}").write_text(json.dumps(told))
    gc.collect()  # models hold the group, as ddp_forever.py says
    dist.destroy_process_group()


main(*sys.argv[1:])
