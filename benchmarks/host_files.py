"""A dataset on the trainer's disk, and two machines that lack it: what reaches them of a 1 Gbit/s link.

Each machine is a host in namespaces of its own: of networks, joined to the trainer and to each other by a
bridge, each way held to 1 Gbit/s, and of mounts, where the dataset's folder is empty. Nothing is computed
at the trainer, which makes no batches; each machine has one of this one's CPUs, which the trainer
shares. --what files: NUM_PHOTOS JPEGs of 40 KB by ImageFolder, shuffled;
rows: samples of 4 MiB that are mapped from files of 400 MB, in order. A sample is its bytes' length and
checksum, so that batches are small.

of_link: bytes that the trainer's machine sent, of the time from the first batch to the last, against what
one plain connection sends there in the same run; trainer_cpu_s_per_gb: of the process that sends, for
each GB of files. --no-tls as of `stoker run`.
Needs root, ip and tc; namespaces and processes are gone at the end. Not a plain script: it asks a run's
own processes what they did.
"""

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import far_origin
import numpy as np
import torch
from behind_link import do, stoker_with, wait_away
from made_data import made_once
from one_side import print_line
from processes import cpu_s_of
from torch.utils.data import DataLoader, Dataset
from torchvision.datasets import ImageFolder

from stoker.clock import Deadline
from stoker.config import Settings
from stoker.remote.net.auth import versions
from stoker.remote.trainer.fleet import Fleet
from stoker.storage.asking.roots import roots_of
from stoker.storage.mounting.elsewhere import MountsAway

HERE, NODES = "10.213.79.1", ("10.213.79.2", "10.213.79.3")
RATE = "1gbit"
NAME, END = f"stoker-files-{os.getpid()}", f"sf{os.getpid() % 10_000}"
PATIENCE_S = 120.0
NUM_ROWS, ROW_NBYTES, ROWS_IN_FILE = 600, 4 << 20, 100
PLAIN_NBYTES = 500_000_000


# -- namespaces ----------------------------------------------------------------------------------


@contextlib.contextmanager
def lan() -> Iterator[None]:
    """The trainer's end, and a machine at each of NODES, on one bridge."""
    names = [f"{NAME}-{k}" for k in range(len(NODES))]
    try:
        do("ip", "netns", "add", NAME)
        do("ip", "-n", NAME, "link", "add", "br0", "type", "bridge")
        do("ip", "-n", NAME, "link", "set", "br0", "up")
        do("ip", "link", "add", END, "type", "veth", "peer", "name", "here", "netns", NAME)
        do("ip", "addr", "add", f"{HERE}/24", "dev", END)
        do("ip", "link", "set", END, "up")
        _plug("here")
        _shape(("tc",), END)
        for k, (name, address) in enumerate(zip(names, NODES, strict=True)):
            do("ip", "netns", "add", name)
            do("ip", "-n", NAME, "link", "add", f"port{k}", "type", "veth", "peer", "name", "eth0", "netns", name)  # fmt: skip
            _plug(f"port{k}")
            for words in (("addr", "add", f"{address}/24", "dev", "eth0"), ("link", "set", "eth0", "up"), ("link", "set", "lo", "up")):  # fmt: skip
                do("ip", "-n", name, *words)
            _shape(("tc", "-n", name), "eth0")
        yield
    finally:
        for words in (("link", "del", END), *(("netns", "del", each) for each in (NAME, *names))):
            subprocess.run(["ip", *words], check=False, capture_output=True)


def _plug(port: str) -> None:
    do("ip", "-n", NAME, "link", "set", port, "master", "br0")
    do("ip", "-n", NAME, "link", "set", port, "up")
    _shape(("tc", "-n", NAME), port)


def _shape(tc: tuple[str, ...], end: str) -> None:
    do(*tc, "qdisc", "add", "dev", end, "root", "tbf", "rate", RATE, "burst", "1mb", "latency", "50ms")  # fmt: skip


def host_words(hidden: Path, count: Path) -> list[str]:
    """What Python runs to be a host on the next machine, where a folder is empty."""
    start = f"mount -t tmpfs none {hidden} && exec {sys.executable} -m stoker.remote.host.start"
    code = f"""
import fcntl, os
with open({str(count)!r}, "a+") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    file.seek(0)
    number = len(file.read())
    file.write("x")
cpus = sorted(os.sched_getaffinity(0))  # of each machine its own, as far as there are as many
os.sched_setaffinity(0, {{cpus[number % len(cpus)]}})
os.execvp("ip", ["ip", "netns", "exec", f"{NAME}-{{number % {len(NODES)}}}", "sh", "-c", {start!r}])
"""
    return ["-c", code]


def sent_nbytes() -> int:
    return int(Path(f"/sys/class/net/{END}/statistics/tx_bytes").read_text())


def plain_bytes_per_s() -> float:
    """Of one connection to the first machine, which reads and does nothing."""
    sink = f"import socket; s = socket.create_server(({NODES[0]!r}, 9999)); print(flush=True); c, _ = s.accept()\nwhile c.recv(1 << 20): pass"
    words = ["ip", "netns", "exec", f"{NAME}-0", sys.executable, "-c", sink]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as sinking:
        assert sinking.stdout is not None
        sinking.stdout.readline()
        with socket.create_connection((NODES[0], 9999)) as sock:
            data, start_s, before = bytes(1 << 20), time.perf_counter(), sent_nbytes()
            for _ in range(PLAIN_NBYTES // len(data)):
                sock.sendall(data)
            return (sent_nbytes() - before) / (time.perf_counter() - start_s)


# -- datasets ------------------------------------------------------------------------------------


def seen(data: bytes) -> torch.Tensor:
    return torch.tensor([len(data), zlib.crc32(data)])


def load_bytes(path: str) -> torch.Tensor:
    return seen(Path(path).read_bytes())


class Rows(Dataset[torch.Tensor]):
    def __init__(self, root: Path) -> None:
        self.paths = sorted(map(str, root.iterdir()))

    def __len__(self) -> int:
        return NUM_ROWS

    def __getitem__(self, index: int) -> torch.Tensor:
        path, row = self.paths[index // ROWS_IN_FILE], index % ROWS_IN_FILE
        mapped = np.memmap(path, np.uint8, "r", shape=(ROWS_IN_FILE, ROW_NBYTES))
        return seen(mapped[row].tobytes())


def _write_rows(folder: Path) -> None:
    numbers = np.random.default_rng(0)
    for k in range(NUM_ROWS // ROWS_IN_FILE):
        (folder / f"{k}.bin").write_bytes(numbers.bytes(ROWS_IN_FILE * ROW_NBYTES))


def dataset(what: str) -> tuple[Path, "Dataset[object]", int]:
    """Folder, dataset, and batch size."""
    if what == "files":
        root = far_origin.photos()
        return root, ImageFolder(str(root), loader=load_bytes), 64
    root = made_once(f"host-rows-{NUM_ROWS}-{ROW_NBYTES}", _write_rows)
    return root, Rows(root), 4


# -- the figure ----------------------------------------------------------------------------------


def measure(what: str, no_tls: bool) -> dict[str, float]:
    root, data, batch_size = dataset(what)
    far_origin.warm(root)
    (hosted,) = roots_of([data])
    loader = DataLoader(data, batch_size, shuffle=what == "files", num_workers=2)
    away = MountsAway(
        mounts=[], hosted=[list(hosted)], way={}, socket="", cache_memory=8 << 30, disk=None,
        keeps=False, credentials={},
    )  # fmt: skip
    with lan(), tempfile.TemporaryDirectory() as temp:
        settings = Settings(
            cluster=f"processes:{len(NODES)}x1", bind=HERE, quiet=True, no_tls=no_tls
        )
        more = {"versions": versions(), "host": host_words(root, Path(temp, "count"))}
        plain = plain_bytes_per_s()
        made = Fleet(settings._asdict() | more | {"mounts_away": away._asdict()}, lambda text: print(text, file=sys.stderr))  # fmt: skip
        try:
            made.wait(lambda: made.num_hosts == len(NODES), Deadline(PATIENCE_S))
            with stoker_with(made):
                epochs = [epoch(loader, made, batch_size)]
                epochs.append(epoch(loader, made, batch_size))
        finally:
            made.close()
    first, later = epochs
    expected = sum(int((each[0] if isinstance(each, tuple) else each)[1]) for each in data)  # type: ignore[attr-defined]
    if {first["check"], later["check"]} != {expected}:
        raise SystemExit("what came is not what lies there")
    total = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    return {
        "link_gbit_per_s": plain * 8 / 1e9,
        "of_link": first["bytes_per_s"] / plain,
        "trainer_cpu_s_per_gb": first["cpu_s"] / (first["files_nbytes"] / 1e9),
        "bytes_sent_frac": made.files_sent_nbytes / total,
        "samples_per_s": first["samples_per_s"],
        "later_per_s": later["samples_per_s"],
    }


def epoch(loader: "DataLoader[object]", made: Fleet, batch_size: int) -> dict[str, float]:
    iterator = iter(loader)
    wait_away(iterator, len(NODES))
    pid, num, check = made._process.pid, 0, 0
    check += _check(next(iterator))
    before = sent_nbytes(), cpu_s_of(pid), made.files_sent(), time.perf_counter()
    for batch in iterator:
        check += _check(batch)
        num += batch_size
    seconds = time.perf_counter() - before[3]
    threading.Event().wait(1.0)  # how much was sent is told twice a second
    return {
        "bytes_per_s": (sent_nbytes() - before[0]) / seconds,
        "cpu_s": cpu_s_of(pid) - before[1],
        "files_nbytes": max(made.files_sent() - before[2], 1),
        "samples_per_s": num / seconds,
        "check": check,
    }


def _check(batch: object) -> int:
    """The sum of its samples' checksums, in whatever order they come."""
    rows = batch[0] if isinstance(batch, list) else batch
    return int(rows[:, 1].sum())  # type: ignore[index]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what", choices=("files", "rows"), default="files")
    parser.add_argument("--no-tls", action="store_true")
    flags = parser.parse_args()
    print_line(measure(flags.what, flags.no_tls))


if __name__ == "__main__":
    main()
