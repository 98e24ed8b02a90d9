"""Averages of 8M elements by the exchange itself, under torchrun's variables: what is on the wire is theirs.

usage: exchanges.py CODE TIMES; prints the bytes that this rank says it sent.
"""

import datetime
import sys

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

from stoker.gradients.codes import Code
from stoker.gradients.exchange import Exchange
from stoker.gradients.filters import Coding

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
store = dist.PrefixStore("ours", _get_default_store())
parameter = torch.nn.Parameter(torch.empty(8_000_000, device="meta"))
exchange = Exchange(
    dist.ProcessGroupGloo(store, rank, size, datetime.timedelta(seconds=60)),
    Coding({id(parameter): Code[sys.argv[1]]}),
)
values = torch.randn(8_000_000)
for _ in range(int(sys.argv[2])):
    exchange.exchange([parameter], values).wait()
print(exchange.counts.wire_nbytes, flush=True)
exchange.close()
dist.barrier()
dist.destroy_process_group()
