"""How fast batches of 10 MB come in from other processes, beside what others have for that.

In turn, all warmed: emulated hosts over TCP loopback through stoker's receiver into the training
loop, and the bare `recv_into` loop, both as in ingest.py; and the peer, whose every process is started from peer_ray.py or
peer_tfdata.py, with that of its settings which was fastest. Nobody makes anything: one batch is sent
again and again. Prints the GB/s of each; `times`, how often the peer's rate is in stoker's;
`bare_times`, how often in the bare loop's, which is the most that this machine can give; and
`of_bare`, stoker's rate against that loop's. Also GB for each CPU second of all processes of a
side, sender, receiver and whatever it has running, and `times_a_cpu_s`.
TensorFlow is installed where it is needed, into a folder of its own beside the benchmarks' data.
Not a plain script: plain torch has nothing like it; there is one side only.
"""

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from emulated import batches_from_hosts
from ingest import BATCH_NBYTES, NUM_HOSTS, Bare
from made_data import made_once
from one_side import GB, print_line
from processes import cpu_s_of_all, descendants

HERE = Path(__file__).resolve().parent
TENSORFLOW = ("tensorflow-cpu", "2.21.0")
SCRIPTS = {"ray": "peer_ray.py", "tf.data": "peer_tfdata.py"}
SETTINGS = {"ray": (0, 2, 4, 8, 32), "tf.data": (0, 2, 4, 16)}  # as the scripts take them
SETTLE_S = 1.0  # what one side has ahead is there: it is idle while the other is measured
DRAIN_S = 0.5  # not counted: what waited


class Measured(NamedTuple):
    gb_per_s: float
    gb_per_cpu_s: float


def install_tensorflow(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "-q", "==".join(TENSORFLOW)]
    subprocess.run(pip, check=True, stdout=sys.stderr)


def python_of(peer: str) -> str:
    if peer == "ray":
        return sys.executable
    return str(made_once("-".join(TENSORFLOW), install_tensorflow) / "bin" / "python")


class Peer:
    """The other side, in processes of its own."""

    def __init__(self, name: str) -> None:
        command = [python_of(name), str(HERE / SCRIPTS[name])]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self._read()
        self.setting = 0

    def _read(self) -> str:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the peer has ended")
        return line

    def rate(self, seconds: float) -> float:
        self.process.stdin.write(f"{self.setting} {seconds}\n")
        self.process.stdin.flush()
        return float(self._read())

    def tune(self, settings: tuple[int, ...], seconds: float) -> dict[int, float]:
        """Takes what is fastest; returns the rate of each."""
        rates = {}
        for self.setting in settings:
            self.rate(seconds)
            rates[self.setting] = self.rate(seconds)
        self.setting = max(rates, key=rates.__getitem__)
        return rates

    def pids(self) -> list[int]:
        return [self.process.pid, *descendants(self.process.pid)]

    def close(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            for pid in reversed(self.pids()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def peer_under_way(name: str) -> Iterator[Peer]:
    peer = Peer(name)
    try:
        yield peer
    finally:
        peer.close()


def measure(rate: Callable[[float], float], pids: list[int], seconds: float) -> Measured:
    """pids: of all processes of the side."""
    time.sleep(SETTLE_S)
    rate(DRAIN_S)
    cpu_s, start_s = cpu_s_of_all(pids), time.perf_counter()
    gb_per_s = rate(seconds)
    wall_s, cpu_s = time.perf_counter() - start_s, cpu_s_of_all(pids) - cpu_s
    return Measured(gb_per_s, gb_per_s * wall_s / cpu_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", choices=SCRIPTS, required=True)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    flags = parser.parse_args()
    batch = torch.rand(BATCH_NBYTES // 4)
    found: list[tuple[Measured, Measured, float]] = []
    bare = Bare()
    with (
        contextlib.closing(bare),
        peer_under_way(flags.peer) as peer,
        batches_from_hosts(NUM_HOSTS, batch) as (iterator, fleet),
    ):

        def ours(seconds: float) -> float:
            start_s, num = time.perf_counter(), 0
            while time.perf_counter() - start_s < seconds:
                next(iterator)
                num += 1
            return num * BATCH_NBYTES / GB / (time.perf_counter() - start_s)

        receiver = fleet._process.pid
        of_ours = [os.getpid(), receiver, *descendants(receiver)]
        ours(flags.seconds / 2)
        bare.measure(flags.seconds / 2)
        tried = peer.tune(SETTINGS[flags.peer], flags.seconds / 2)
        for _ in range(flags.rounds):
            our = measure(ours, of_ours, flags.seconds)
            their = measure(peer.rate, peer.pids(), flags.seconds)
            found.append((our, their, bare.measure(flags.seconds)[0]))
    *sides, bares = zip(*found, strict=True)
    our, their = (Measured(*map(statistics.median, zip(*side, strict=True))) for side in sides)
    print_line(
        {
            "gb_per_s": our.gb_per_s,
            "peer_gb_per_s": their.gb_per_s,
            "bare_gb_per_s": statistics.median(bares),
            "times": statistics.median(a.gb_per_s / b.gb_per_s for a, b, _ in found),
            "bare_times": statistics.median(bare / b.gb_per_s for _, b, bare in found),
            "of_bare": statistics.median(a.gb_per_s / bare for a, _, bare in found),
            "gb_per_cpu_s": our.gb_per_cpu_s,
            "peer_gb_per_cpu_s": their.gb_per_cpu_s,
            "times_a_cpu_s": statistics.median(
                a.gb_per_cpu_s / b.gb_per_cpu_s for a, b, _ in found
            ),
            **{f"peer_{setting}_gb_per_s": rate for setting, rate in tried.items()},
        }
    )


if __name__ == "__main__":
    main()
