"""Train a small network to tell instruments apart, on mel spectrograms.

usage: python examples/audio/train.py --data FOLDER      (one sub-folder of WAV files per class)
"""

import argparse
import time
from pathlib import Path

import soundfile
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchaudio import transforms

RATE = 16_000


class Sounds(Dataset):
    """Mel spectrograms in decibels, [1, 128, frames], and the class; masked at random if `augment`."""

    def __init__(self, root, augment):
        self.classes = sorted(folder.name for folder in Path(root).iterdir())
        self.files = sorted(Path(root).glob("*/*.wav"))
        self.resample = transforms.Resample(44_100, RATE)
        self.mel = transforms.MelSpectrogram(RATE, n_fft=1024, hop_length=256, n_mels=128)
        self.to_decibels = transforms.AmplitudeToDB(top_db=80)
        self.mask = nn.Sequential(transforms.FrequencyMasking(24), transforms.TimeMasking(60))
        self.augment = augment

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        file = self.files[index]
        samples, _ = soundfile.read(file, dtype="float32")
        wave = self.resample(torch.from_numpy(samples))
        mel = self.to_decibels(self.mel(wave)).unsqueeze(0)
        if self.augment:
            mel = self.mask(mel)
        return mel, self.classes.index(file.parent.name)


def make_model(num_classes):
    layers = []
    for channels_in, channels_out in ((1, 8), (8, 16), (16, 32)):
        layers += [nn.Conv2d(channels_in, channels_out, 5, stride=4, padding=2), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, num_classes))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--no-augment", action="store_true", help="no SpecAugment")
    args = parser.parse_args()
    torch.manual_seed(0)
    dataset = Sounds(args.data, augment=not args.no_augment)
    loader = DataLoader(dataset, args.batch_size, shuffle=True, num_workers=args.workers)
    model = make_model(len(dataset.classes))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for epoch in range(args.epochs):
        began_s, total = time.perf_counter(), 0.0
        for mels, labels in loader:
            loss = nn.functional.cross_entropy(model(mels / 80), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
        seconds = time.perf_counter() - began_s
        print(
            f"epoch {epoch + 1}: loss {total / len(dataset):.4f}, {len(dataset) / seconds:.0f} sounds/s"
        )


if __name__ == "__main__":
    main()
