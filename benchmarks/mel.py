"""How fast mel spectrograms of WAV files of 5 s arrive whose tables are made anew for each: one --case a way.

`resample` calls torchaudio's functional resample, `transforms` makes its transforms in `__getitem__`; batch 32.
Prints sounds_per_s. A plain script: it runs the same under python and under stoker.
"""

import wave
from collections.abc import Callable

import numpy as np
import torch
from media import RATE, sounds
from one_side import measure_rate, print_line, rate_arguments
from torch.utils.data import DataLoader, Dataset
from torchaudio import functional, transforms

BATCH_SIZE = 32
NUM_ROUNDS = 100
WANTED_RATE = 16_000
MEL = {"n_fft": 1024, "hop_length": 256, "n_mels": 128}


def by_resample() -> Callable[[torch.Tensor], torch.Tensor]:
    mel = transforms.MelSpectrogram(WANTED_RATE, **MEL)
    return lambda sound: mel(functional.resample(sound, RATE, WANTED_RATE))


def by_transforms() -> Callable[[torch.Tensor], torch.Tensor]:
    def make(sound: torch.Tensor) -> torch.Tensor:
        resample = transforms.Resample(RATE, WANTED_RATE)
        return transforms.MelSpectrogram(WANTED_RATE, **MEL)(resample(sound))

    return make


CASES = {"resample": by_resample, "transforms": by_transforms}


class Sounds(Dataset):
    def __init__(self, make: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.files = NUM_ROUNDS * [str(file) for file in sorted(sounds().glob("*.wav"))]
        self.make = make

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        with wave.open(self.files[index]) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), np.int16)
        return self.make(torch.from_numpy(samples / np.float32(32768)))


def main() -> None:
    parser = rate_arguments(__doc__)
    parser.add_argument("--case", choices=CASES, required=True)
    flags = parser.parse_args()
    dataset = Sounds(CASES[flags.case]())
    loader = DataLoader(dataset, BATCH_SIZE, shuffle=True, num_workers=flags.num_workers)
    figures = measure_rate(loader, flags)
    print_line({"sounds_per_s": figures["batches_per_s"] * BATCH_SIZE, **figures})


if __name__ == "__main__":
    main()
