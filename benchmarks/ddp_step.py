"""Whole training steps of a transformer of 25M parameters on four ranks, plain DDP's and stoker's.

Each rank in a network namespace of its own, behind a link that tc holds. Both models live in the same
processes and take turns, a few steps each, after stoker's own trial has ended. --compute real: the
ranks share this machine's cores; --compute sleep: each layer sleeps as long as it takes one rank that
has them to itself (measured first), as if it had an accelerator of its own.
Prints milliseconds of both kinds of step, and `gain`, the median of their ratios.
Not a plain script: both sides are in one process; there is one side only.
"""

import argparse
import datetime
import statistics
import sys
import time

import torch
import torch.distributed as dist
from one_side import print_line
from ranks import leave, links, start
from torch.nn.parallel import DistributedDataParallel

NUM_RANKS = 4
WIDTH, NUM_LAYERS, NUM_WORDS = 512, 8, 256  # 25.2M parameters between embedding and head
BATCH, LENGTH = 8, 32  # samples, words
NUM_STEPS = 2  # of a turn; the first is not counted
PATIENCE = datetime.timedelta(seconds=900)


class Sleep(torch.autograd.Function):
    """Takes a layer's time, and gives its parameters a gradient of their own size."""

    @staticmethod
    def forward(ctx, x, seconds, gradients, *parameters):
        ctx.seconds, ctx.gradients = seconds, gradients
        time.sleep(seconds)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(2 * ctx.seconds)
        return gradient, None, None, *ctx.gradients


class Layer(torch.nn.TransformerEncoderLayer):
    """sleep_s: of a forward pass, in place of it; 0: the real one."""

    sleep_s = 0.0

    def forward(self, x, *args, **kwargs):
        if not self.sleep_s:
            return super().forward(x)
        if not hasattr(self, "made"):
            self.made = [torch.randn_like(parameter) for parameter in self.parameters()]
        return Sleep.apply(x, self.sleep_s, self.made, *self.parameters())


class Transformer(torch.nn.Module):
    def __init__(self, sleep_s: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = torch.nn.Embedding(NUM_WORDS, WIDTH)
        make = lambda: Layer(WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True)  # noqa: E731
        self.layers = torch.nn.Sequential(*[make() for _ in range(NUM_LAYERS)])
        self.head = torch.nn.Linear(WIDTH, NUM_WORDS)
        for layer in self.layers:
            layer.sleep_s = sleep_s

    def forward(self, words):
        return self.head(self.layers(self.embedding(words)))


class Training:
    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.optimiser = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=True)

    def step(self) -> None:
        words = torch.randint(NUM_WORDS, (BATCH, LENGTH + 1))
        logits = self.model(words[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), words[:, 1:].flatten())
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()

    def steps_s(self) -> float:
        """Median of a turn; all ranks begin it together."""
        seconds = []
        for _ in range(NUM_STEPS):
            dist.barrier()
            begin_s = time.perf_counter()
            self.step()
            dist.barrier()
            seconds.append(time.perf_counter() - begin_s)
        return statistics.median(seconds[1:])


def layers_s() -> float:
    """A layer's forward pass, of one rank that has the cores to itself: a third of its step."""
    training = Training(Transformer(0.0))
    seconds = []
    for _ in range(4):
        begin_s = time.perf_counter()
        training.step()
        seconds.append(time.perf_counter() - begin_s)
    return min(seconds) / NUM_LAYERS / 3


def rank(num_rounds: int, sleep_s: float, scheme: str) -> None:
    from stoker.config import Settings
    from stoker.intercept import patches, run

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=PATIENCE)
    plain = Training(DistributedDataParallel(Transformer(sleep_s)))
    run.begin(Settings(gradients=scheme))
    patches.install_ddp()
    said: list[str] = []
    run.say_once = said.append
    ours = Training(DistributedDataParallel(Transformer(sleep_s)))
    told = torch.zeros(1)
    while not told:  # until the trial's verdict, on all ranks alike
        ours.step()
        told.fill_(len(said))
        dist.all_reduce(told)
    found = []
    plain.steps_s()
    for _ in range(num_rounds):
        found.append((plain.steps_s(), ours.steps_s()))
    if dist.get_rank() == 0:
        print(*said, file=sys.stderr)
        print_line(
            {
                "plain_ms": 1e3 * statistics.median(plain_s for plain_s, _ in found),
                "ours_ms": 1e3 * statistics.median(ours_s for _, ours_s in found),
                "compute_ms": 3e3 * NUM_LAYERS * sleep_s,
                "gain": statistics.median(plain_s / ours_s for plain_s, ours_s in found),
            }
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", default="", help="of a rank's link, as tc takes it")
    parser.add_argument("--compute", choices=["real", "sleep"], default="sleep")
    parser.add_argument("--scheme", default="4bit")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rank", type=float, help="be one of the ranks; a layer sleeps so long")
    flags = parser.parse_args()
    if flags.rank is not None:
        rank(flags.rounds, flags.rank, flags.scheme)
        return leave()
    sleep_s = layers_s() if flags.compute == "sleep" else 0.0
    own = ["--rounds", str(flags.rounds), "--scheme", flags.scheme, "--rank", repr(sleep_s)]
    with links(NUM_RANKS, flags.rate):
        ranks = start(NUM_RANKS, [__file__, *own])
        for process in ranks:
            sys.stdout.write(process.communicate()[0])
    return sys.exit(max(process.returncode for process in ranks))


if __name__ == "__main__":
    main()
