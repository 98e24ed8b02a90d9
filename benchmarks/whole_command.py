"""Short training scripts with nothing to gain, as the public examples are; their whole commands are timed.

    digits   a CNN on 28x28 digits in memory, PIL and ToTensor a sample, num_workers=0, and a test loop
    chars    a character RNN on a TensorDataset, num_workers=0: batches of a tenth of a millisecond
    workers  an MLP on cheap samples with num_workers=2, a new pair of workers every epoch

Prints the last loss, so that both sides can be seen to have done the same; the clock is sides.py's.
A plain script: it runs the same under python and under stoker.
"""

import argparse
from collections.abc import Callable

import numpy as np
import torch
from one_side import print_line
from PIL import Image
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset
from torchvision import transforms

NUM_DIGITS, NUM_TEST_DIGITS = 4_000, 1_000
NUM_CHARS, NUM_TEXTS, LENGTH = 64, 8_000, 16
NUM_ROWS = 6_000
NUM_EPOCHS_OF_WORKERS = 6


class Digits(Dataset):
    """As torchvision's MNIST: all pixels in one tensor, each sample through PIL and a transform."""

    def __init__(self, num_samples: int) -> None:
        noise = torch.Generator().manual_seed(num_samples)
        self.data = torch.randint(0, 256, (num_samples, 28, 28), generator=noise, dtype=torch.uint8)
        self.targets = torch.randint(0, 10, (num_samples,), generator=noise)
        self.transform = transforms.Compose(
            [transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))]
        )

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = Image.fromarray(self.data[index].numpy(), mode="L")
        return self.transform(image), int(self.targets[index])


class Rows(Dataset):
    """A table; a row is made with a little NumPy, as a script's own Dataset does."""

    def __init__(self, num_rows: int) -> None:
        self.table = np.random.default_rng(0).standard_normal((num_rows, 32), dtype=np.float32)

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, float]:
        row = self.table[index]
        return torch.from_numpy((row - row.mean()) / row.std()), float(row[0])


def digits() -> float:
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Dropout(0.25), nn.Flatten(), nn.Linear(4608, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    optimizer = torch.optim.Adadelta(model.parameters())
    train = DataLoader(Digits(NUM_DIGITS), batch_size=64, shuffle=True)
    test = DataLoader(Digits(NUM_TEST_DIGITS), batch_size=1000)
    for images_BCHW, labels_B in train:  # noqa: N806  # their shapes
        optimizer.zero_grad()
        functional.cross_entropy(model(images_BCHW), labels_B).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        return sum(functional.cross_entropy(model(x), y).item() for x, y in test)


class CharModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(NUM_CHARS, 32)
        self.rnn = nn.GRU(32, 64, batch_first=True)
        self.head = nn.Linear(64, NUM_CHARS)

    def forward(self, chars: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(self.embed(chars))[0])


def chars() -> float:
    text = torch.randint(0, NUM_CHARS, (NUM_TEXTS, LENGTH + 1))
    model = CharModel()
    optimizer = torch.optim.Adam(model.parameters())
    loader = DataLoader(TensorDataset(text[:, :-1], text[:, 1:]), batch_size=64, shuffle=True)
    for _ in range(2):
        for before, after in loader:
            loss = functional.cross_entropy(model(before).flatten(0, 1), after.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss.item()


def workers() -> float:
    model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Rows(NUM_ROWS), batch_size=64, shuffle=True, num_workers=2)
    for _ in range(NUM_EPOCHS_OF_WORKERS):
        for rows, wanted in loader:
            loss = functional.mse_loss(model(rows).squeeze(1), wanted.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss.item()


WORKS: dict[str, Callable[[], float]] = {"digits": digits, "chars": chars, "workers": workers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", choices=WORKS, required=True)
    torch.manual_seed(0)
    print_line({"loss": WORKS[parser.parse_args().work]()})


if __name__ == "__main__":
    main()
