"""WAV files to mel spectrograms, two workers, a bar of rich."""

import tempfile
import wave
from pathlib import Path

import numpy as np
import torch
from rich.progress import track
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE, SECONDS, NUM_FILES = 16_000, 4, 200


class Sounds(Dataset):
    def __init__(self, folder):
        self.files = sorted(Path(folder).glob("*.wav")) * 12
        self.filters = torch.rand(80, 513)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        with wave.open(str(self.files[index])) as sound:
            samples = np.frombuffer(sound.readframes(sound.getnframes()), np.int16)
        wave_n = torch.from_numpy(samples / 32768.0).float() + 0.001 * torch.randn(len(samples))
        spectrum = torch.stft(
            wave_n, 1024, 160, window=torch.hann_window(1024), return_complex=True
        )
        return (self.filters @ spectrum.abs().square()).clamp(min=1e-10).log10()


if __name__ == "__main__":
    torch.manual_seed(0)
    folder = tempfile.TemporaryDirectory()
    generator = np.random.default_rng(0)
    for number in range(NUM_FILES):
        tone = np.sin(np.arange(RATE * SECONDS) * generator.uniform(0.05, 0.5))
        with wave.open(f"{folder.name}/{number:03}.wav", "wb") as out:
            out.setparams((1, 2, RATE, 0, "NONE", ""))
            out.writeframes((tone * 20_000).astype(np.int16).tobytes())
    model = nn.Sequential(nn.Conv1d(80, 16, 5, stride=4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4))
    loader = DataLoader(Sounds(folder.name), 16, shuffle=True, num_workers=2)
    for epoch in range(2):
        for mels in track(loader, f"epoch {epoch}"):
            loss = model(mels).square().mean()
            loss.backward()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
