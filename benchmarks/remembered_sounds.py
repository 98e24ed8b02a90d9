"""WAV files as mel spectrograms, for remembered.py."""

import wave
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset
from torchaudio import transforms


class Sounds(Dataset):
    """Mel spectrograms in decibels of WAV files, masked at random if `augment`."""

    def __init__(self, files: list[Path], augment: bool) -> None:
        self.files = [str(file) for file in files]
        self.resample = transforms.Resample(44_100, 16_000)
        self.mel = transforms.MelSpectrogram(16_000, n_fft=1024, hop_length=256, n_mels=128)
        self.to_decibels = transforms.AmplitudeToDB(top_db=80)
        masks = transforms.FrequencyMasking(24), transforms.TimeMasking(60)
        self.mask = torch.nn.Sequential(*masks)
        self.augment = augment

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        with wave.open(self.files[index]) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
        sound = self.resample(torch.from_numpy(samples / np.float32(32768)))
        mel = self.to_decibels(self.mel(sound))
        if self.augment:
            mel = self.mask(mel)
        return mel
