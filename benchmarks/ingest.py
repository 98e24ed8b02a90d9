"""How fast batches of 10 MB come in from other processes over TCP loopback.

In turn, both warmed: the whole way of a batch, from emulated hosts through the receiver into the
training loop; and the least that anybody could do, one `recv_into` loop into one reused buffer
from a process that does nothing but send. Prints gb_per_s and cpu_s_per_gb of both, of the
receiver and the training process for the first.
Not a plain script: plain torch has nothing like it; there is one side only.
"""

import argparse
import os
import signal
import socket
import statistics
import time

import torch
from emulated import batches_from_hosts
from one_side import GB, print_line
from processes import cpu_s_of

BATCH_NBYTES = 10_000_000 // 4096 * 4096
NUM_HOSTS = 2


class Bare:
    """A sender, forked before anything else, and the loop that receives from it."""

    def __init__(self) -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        self.pid = os.fork()
        if self.pid == 0:
            with socket.create_connection(listening.getsockname()) as sock:
                self._send(sock)
            os._exit(0)
        self.sock, _ = listening.accept()
        listening.close()
        self.buffer = memoryview(bytearray(BATCH_NBYTES))

    @staticmethod
    def _send(sock: socket.socket) -> None:
        data = memoryview(bytearray(os.urandom(BATCH_NBYTES)))
        while sock.recv(1):
            sock.sendall(data)

    def measure(self, seconds: float) -> tuple[float, float]:
        """GB/s, and CPU seconds of the receiving side for each."""
        cpu_s, start_s, num = time.process_time(), time.perf_counter(), 0
        self.sock.sendall(b"12")  # two ahead, as a loader has
        while time.perf_counter() - start_s < seconds:
            self._receive_one()
            self.sock.send(b"n")
            num += 1
        wall_s, cpu_s = time.perf_counter() - start_s, time.process_time() - cpu_s
        for _ in range(2):
            self._receive_one()
        gb = num * BATCH_NBYTES / GB
        return gb / wall_s, cpu_s / gb

    def _receive_one(self) -> None:
        view = self.buffer
        while view.nbytes:
            view = view[self.sock.recv_into(view) :]

    def close(self) -> None:
        self.sock.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def measure(iterator, receiver: int, seconds: float) -> tuple[float, float]:
    cpu_s, start_s, num = time.process_time() + cpu_s_of(receiver), time.perf_counter(), 0
    while time.perf_counter() - start_s < seconds:
        next(iterator)
        num += 1
    wall_s = time.perf_counter() - start_s
    gb = num * BATCH_NBYTES / GB
    return gb / wall_s, (time.process_time() + cpu_s_of(receiver) - cpu_s) / gb


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    flags = parser.parse_args()
    bare = Bare()
    batch = torch.rand(BATCH_NBYTES // 4)
    found: dict[str, list[tuple[float, float]]] = {"bare": [], "ours": []}
    with batches_from_hosts(NUM_HOSTS, batch) as (iterator, fleet):
        first = next(iterator)
        assert torch.equal(first, batch)
        for number in range(flags.rounds + 1):
            ours = measure(iterator, fleet._process.pid, flags.seconds)
            theirs = bare.measure(flags.seconds)
            if number:  # the first warms both
                found["ours"].append(ours)
                found["bare"].append(theirs)
    bare.close()
    rates = {side: statistics.median(rate for rate, _ in pairs) for side, pairs in found.items()}
    costs = {side: statistics.median(cost for _, cost in pairs) for side, pairs in found.items()}
    ratios = [a[0] / b[0] for a, b in zip(found["ours"], found["bare"], strict=True)]
    print_line(
        {
            "gb_per_s": rates["ours"],
            "bare_gb_per_s": rates["bare"],
            "of_bare": statistics.median(ratios),
            "cpu_s_per_gb": costs["ours"],
            "bare_cpu_s_per_gb": costs["bare"],
        }
    )


if __name__ == "__main__":
    main()
