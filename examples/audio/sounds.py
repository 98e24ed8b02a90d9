"""Make a folder of WAV files: chords of a few instruments, one sub-folder per instrument.

Job: sounds of five seconds at 44.1 kHz for train.py, on a machine without a data set.
Promise: the same files every time (seeded by class and number). Ban: no network.

usage: python examples/audio/sounds.py FOLDER [--count 200]
"""

import argparse
import wave
from pathlib import Path

import numpy as np

RATE, SECONDS = 44_100, 5
# Loudness of the overtones, from the fundamental on.
INSTRUMENTS = {
    "flute": (1.0, 0.2, 0.05),
    "clarinet": (1.0, 0.05, 0.6, 0.05, 0.3),
    "strings": (1.0, 0.7, 0.5, 0.4, 0.3, 0.2, 0.15),
    "organ": (1.0, 0.9, 0.0, 0.8, 0.0, 0.0, 0.0, 0.6),
}


def chord(overtones, rng):
    """Three notes that swell and fade, and some noise: int16, RATE * SECONDS samples."""
    time_s = np.arange(RATE * SECONDS) / RATE
    sound = rng.normal(0, 0.01, len(time_s))
    for _ in range(3):
        pitch_hz, begins_s = rng.uniform(110, 880), rng.uniform(0, SECONDS - 1)
        swell = np.exp(-(((time_s - begins_s) / rng.uniform(0.5, 2)) ** 2))
        for number, loudness in enumerate(overtones, 1):
            sound += loudness * swell * np.sin(2 * np.pi * number * pitch_hz * time_s)
    return (sound / np.abs(sound).max() * 30_000).astype(np.int16)


def write(folder, count):
    for name, overtones in INSTRUMENTS.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count // len(INSTRUMENTS)):
            rng = np.random.default_rng([len(overtones), number])
            with wave.open(str(folder / name / f"{number:04}.wav"), "wb") as out:
                out.setparams((1, 2, RATE, 0, "NONE", ""))
                out.writeframes(chord(overtones, rng).tobytes())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=200)
    flags = parser.parse_args()
    write(flags.folder, flags.count)
