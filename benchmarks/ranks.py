"""Ranks in network namespaces of their own, joined by a bridge, each behind a link of its own.

Needs root, ip and tc. Namespaces, links and all processes are gone at the end.
"""

import contextlib
import gc
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

import torch.distributed as dist

NAME = f"stoker-ranks-{os.getpid()}"
BRIDGE = f"sr{os.getpid() % 100_000}"
PORT = "29511"


def do(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def address(rank: int) -> str:
    return f"10.213.79.{rank + 1}"


def namespace(rank: int) -> str:
    return f"{NAME}-{rank}"


@contextlib.contextmanager
def links(num: int, rate: str = "") -> Iterator[None]:
    """rate: of each rank's link in either direction, as tc takes it; empty: as fast as it goes."""
    try:
        do("ip", "link", "add", BRIDGE, "type", "bridge")
        do("ip", "link", "set", BRIDGE, "up")
        for rank in range(num):
            name, end = namespace(rank), f"{BRIDGE}-{rank}"
            do("ip", "netns", "add", name)
            do("ip", "link", "add", end, "type", "veth", "peer", "name", "veth0", "netns", name)
            do("ip", "link", "set", end, "master", BRIDGE, "up")
            do("ip", "-n", name, "addr", "add", f"{address(rank)}/24", "dev", "veth0")
            do("ip", "-n", name, "link", "set", "veth0", "up")
            do("ip", "-n", name, "link", "set", "lo", "up")
            if rate:
                shape = ("root", "tbf", "rate", rate, "burst", "1mb", "latency", "50ms")
                do("tc", "qdisc", "add", "dev", end, *shape)
                do("tc", "-n", name, "qdisc", "add", "dev", "veth0", *shape)
        yield
    finally:
        # Each link by its name: what goes with its namespace goes some time later.
        gone = [["link", "del", f"{BRIDGE}-{rank}"] for rank in range(num)]
        gone += [["netns", "del", namespace(rank)] for rank in range(num)]
        for words in [*gone, ["link", "del", BRIDGE]]:
            subprocess.run(["ip", *words], check=False, capture_output=True)


def sent_nbytes(rank: int) -> int:
    """What has left a rank's link, headers and all."""
    counter = "/sys/class/net/veth0/statistics/tx_bytes"
    words = ["ip", "netns", "exec", namespace(rank), "cat", counter]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def start(num: int, words: Sequence[str]) -> list["subprocess.Popen[str]"]:
    """One Python with these arguments in each namespace, under torchrun's variables."""
    ranks = []
    for rank in range(num):
        own = {"RANK": rank, "WORLD_SIZE": num, "LOCAL_RANK": 0, "MASTER_ADDR": address(0)}
        own |= {"MASTER_PORT": PORT, "GLOO_SOCKET_IFNAME": "veth0", "OMP_NUM_THREADS": 1}
        environ = os.environ | {name: str(value) for name, value in own.items()}
        command = ["ip", "netns", "exec", namespace(rank), sys.executable, *words]
        ranks.append(subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True))
    return ranks


def leave() -> None:
    """The process group, once models that hold it are out of scope: its threads else may abort a
    process that ends before them (https://github.com/pytorch/pytorch/issues/190489)."""
    gc.collect()
    dist.destroy_process_group()
