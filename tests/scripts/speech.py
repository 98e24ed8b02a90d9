"""Train a letter recogniser with CTC on WAV files of many lengths.

usage: python speech.py --data FOLDER
"""

import argparse
import random
import wave
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, random_split

ALPHABET = "_abcdefghij"  # the first is CTC's blank


class Utterances(NamedTuple):
    features: torch.Tensor  # (B, frames, mels)
    num_frames: torch.Tensor
    letters: torch.Tensor
    num_letters: torch.Tensor
    names: list[str]


class Speech(Dataset):
    def __init__(self, folder):
        self.folder = folder
        lines = (folder / "transcripts.tsv").read_text().splitlines()
        self.entries = [line.split("\t") for line in lines]

    def __len__(self):
        return len(self.entries)

    def __getitem__(self, index):
        name, word = self.entries[index]
        with wave.open(str(self.folder / name)) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), dtype=np.int16)
        return torch.from_numpy(samples / np.float32(2**15)), word, name


class Collate:
    """Log energies in bands, padded; in training with a shift in time and masked bands."""

    def __init__(self, num_bands=24, training=False):
        self.num_bands, self.training = num_bands, training
        self.window = torch.hann_window(200)

    def bands(self, samples):
        spectrum = torch.stft(samples, 200, 80, window=self.window, return_complex=True).abs()
        energies = nn.functional.adaptive_avg_pool1d(spectrum.T, self.num_bands)
        energies = torch.log(energies + 1e-4)
        if self.training and random.random() < 0.7:
            first = random.randrange(self.num_bands - 4)
            energies[:, first : first + random.randint(1, 4)] = 0
        return energies

    def __call__(self, batch):
        if self.training:
            shifts = torch.randint(0, 400, (len(batch),)).tolist()
            batch = [
                (nn.functional.pad(s, (shift, 0)), *rest)
                for (s, *rest), shift in zip(batch, shifts, strict=True)
            ]
        batch = sorted(batch, key=lambda entry: len(entry[0]), reverse=True)
        features = [self.bands(samples) for samples, _, _ in batch]
        letters = [torch.tensor([ALPHABET.index(c) for c in word]) for _, word, _ in batch]
        return Utterances(
            pad_sequence(features, batch_first=True),
            torch.tensor([len(f) for f in features]),
            pad_sequence(letters, batch_first=True, padding_value=0),
            torch.tensor([len(word) for word in letters]),
            [name for _, _, name in batch],
        )


class Recogniser(nn.Module):
    def __init__(self, num_bands=24, width=32):
        super().__init__()
        self.gru = nn.GRU(num_bands, width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, len(ALPHABET))

    def forward(self, features):
        return self.out(self.gru(features)[0]).log_softmax(-1).transpose(0, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)

    train_set, val_set = random_split(Speech(args.data / "speech"), [30, 6])
    common = {"num_workers": 2, "pin_memory": True}
    train_loader = DataLoader(
        train_set, 5, shuffle=True, collate_fn=Collate(training=True), **common
    )
    val_loader = DataLoader(val_set, 3, collate_fn=Collate(), **common)
    model = Recogniser()
    criterion = nn.CTCLoss(zero_infinity=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        for step, batch in enumerate(train_loader):
            scores = model(batch.features)
            loss = criterion(scores, batch.letters, batch.num_frames, batch.num_letters)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            print(f"epoch {epoch} step {step} longest {batch.names[0]} loss {loss.item():.8f}")
        with torch.no_grad():
            for batch in val_loader:
                scores = model(batch.features)
                loss = criterion(scores, batch.letters, batch.num_frames, batch.num_letters)
                print(f"  val {batch.names} {loss.item():.8f} {scores.argmax(-1).sum().item()}")


if __name__ == "__main__":
    main()
