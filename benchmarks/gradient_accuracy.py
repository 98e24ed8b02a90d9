"""What compressed gradients cost in accuracy: the same steps with each code, five seeds.

Two models: a small CNN on scikit-learn's digits, a character transformer on the text that Python ships
for help(). Four ranks' gradients of the same parameters are averaged by stoker's own exchange, between
threads of this process, over gloo; fp32 is their plain mean. Prints the mean of the final validation
losses of each scheme and model, its standard deviation over the seeds, and how much it is above
fp32's, of the same seeds.
Not a plain script: it measures stoker's own module; there is one side only.
"""

import argparse
import pydoc_data.topics
import statistics
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import torch
import torch.distributed as dist
from one_side import print_line
from sklearn.datasets import load_digits
from torch import nn

from stoker.gradients.exchange import Exchange
from stoker.gradients.filters import coding_of

NUM_RANKS = 4
SCHEMES = ("fp32", "bf16", "8bit", "4bit", "4bit+ef")
CONTEXT = 64
functional = nn.functional


class Digits:
    """1,797 images of 8x8; every fifth is for validation. Smoothed labels keep the loss away from 0,
    where chance alone would be a large share of it."""

    num_steps, lr = 300, 0.05

    def __init__(self) -> None:
        images, labels = load_digits(return_X_y=True)
        x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
        y, is_kept = torch.tensor(labels), torch.arange(len(labels)) % 5 == 0
        self.train, self.val = (x[~is_kept], y[~is_kept]), (x[is_kept], y[is_kept])

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 10),
        )  # fmt: skip

    def batch(self, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = torch.randint(len(self.train[0]), (16,), generator=generator)
        return self.train[0][chosen], self.train[1][chosen]

    def loss(self, model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(x), y, label_smoothing=0.1)

    def val_loss(self, model: nn.Module) -> float:
        return self.loss(model, *self.val).item()


class Characters(nn.Module):
    def __init__(self, num: int, width: int = 96, num_layers: int = 3) -> None:
        super().__init__()
        self.embedding, self.places = nn.Embedding(num, width), nn.Embedding(CONTEXT, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, batch_first=True, norm_first=True)
            for _ in range(num_layers)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, num)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x) + self.places.weight[: x.shape[1]]
        for layer in self.layers:
            x = layer(x, src_mask=self.mask, is_causal=True)
        return self.head(self.norm(x))


class Text:
    """Its last tenth is for validation."""

    num_steps, lr = 150, 0.3

    def __init__(self) -> None:
        text = "".join(pydoc_data.topics.topics.values())
        letters = sorted(set(text))
        codes = torch.tensor([letters.index(each) for each in text])
        self.num, end = len(letters), len(codes) * 9 // 10
        self.train = codes[:end]
        starts = torch.arange(end, len(codes) - CONTEXT - 1, 1009)
        self.val = torch.stack([codes[start : start + CONTEXT + 1] for start in starts])

    def model(self) -> nn.Module:
        return Characters(self.num)

    def batch(self, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        starts = torch.randint(len(self.train) - CONTEXT - 1, (8,), generator=generator)
        rows = torch.stack([self.train[start : start + CONTEXT + 1] for start in starts])
        return rows[:, :-1], rows[:, 1:]

    def loss(self, model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(x).flatten(0, 1), y.flatten())

    def val_loss(self, model: nn.Module) -> float:
        return self.loss(model, self.val[:, :-1], self.val[:, 1:]).item()


class Averages:
    """Of the ranks' flat gradients, in place, by a scheme."""

    def __init__(self, model: nn.Module, scheme: str) -> None:
        self.parameters = list(model.parameters())
        self.pool = ThreadPoolExecutor(NUM_RANKS)
        store, self.exchanges = dist.HashStore(), []
        if scheme != "fp32":
            for group in self.pool.map(
                lambda rank: dist.ProcessGroupGloo(store, rank, NUM_RANKS, timedelta(seconds=60)),
                range(NUM_RANKS),
            ):
                self.exchanges.append(Exchange(group, coding_of(model, scheme, {})))

    def __call__(self, flat: list[torch.Tensor]) -> torch.Tensor:
        if not self.exchanges:
            return torch.stack(flat).mean(0)
        pairs = zip(self.exchanges, flat, strict=True)
        futures = [each.exchange(self.parameters, buffer) for each, buffer in pairs]
        list(self.pool.map(lambda future: future.wait(), futures))
        return flat[0]

    def close(self) -> None:
        for each in self.exchanges:
            each.close()
        self.pool.shutdown()


def final_loss(work: Digits | Text, scheme: str, seed: int) -> float:
    torch.manual_seed(seed)
    model = work.model()
    average = Averages(model, scheme)
    optimiser = torch.optim.SGD(model.parameters(), lr=work.lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, work.lr, total_steps=work.num_steps)
    generators = [torch.Generator().manual_seed(100 * seed + rank) for rank in range(NUM_RANKS)]
    for _ in range(work.num_steps):
        flat = []
        for generator in generators:
            model.zero_grad()
            work.loss(model, *work.batch(generator)).backward()
            flat.append(torch.cat([each.grad.flatten() for each in model.parameters()]))
        mean = average(flat)
        sizes = [each.numel() for each in model.parameters()]
        for parameter, part in zip(model.parameters(), mean.split(sizes), strict=True):
            parameter.grad = part.view_as(parameter)
        optimiser.step()
        schedule.step()
    average.close()
    model.eval()
    with torch.no_grad():
        return work.val_loss(model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--work", nargs="*", choices=["digits", "text"], default=["digits", "text"])
    parser.add_argument("--schemes", nargs="*", default=SCHEMES)
    flags = parser.parse_args()
    torch.set_num_threads(1)
    line: dict[str, float] = {}
    for name in flags.work:
        work: Digits | Text = Digits() if name == "digits" else Text()
        losses = {
            scheme: [final_loss(work, scheme, seed) for seed in range(flags.seeds)]
            for scheme in flags.schemes
        }
        for scheme, each in losses.items():
            key, plain = f"{name}_{scheme}", losses["fp32"]
            line[f"{key}_loss"] = statistics.mean(each)
            line[f"{key}_spread"] = statistics.stdev(each) if len(each) > 1 else 0.0
            above = statistics.mean(each) - statistics.mean(plain)
            line[f"{key}_above_percent"] = 100 * above / statistics.mean(plain)
            if len(plain) > 1:
                line[f"{key}_above_spreads"] = above / statistics.stdev(plain)
    print_line(line)


if __name__ == "__main__":
    main()
