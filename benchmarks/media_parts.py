"""What a clip or a mel spectrogram would gain if what libraries make anew at each call were made once.

Each --case makes one sample as scripts do and as if the repeated part cost nothing, in turn, on one core; prints the
median ms of both and their ratio. These are bounds, no promise that there is a way to reach them:
docs/decisions/033-video-and-audio.md. Needs PyAV, torchaudio, librosa or torchcodec, by case. Knows nothing of stoker.
"""

import argparse
import functools
import json
import os
import statistics
import time
import wave
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from media import RATE, sounds, videos

NUM_TURNS = 15
NUM_FRAMES = 32  # that are kept of a clip
MEL = {"n_fft": 1024, "hop_length": 256, "n_mels": 128}
Make = Callable[[], Any]


def read_sound(num_s: float) -> torch.Tensor:
    with wave.open(str(sounds() / "0000.wav")) as file:
        samples = np.frombuffer(file.readframes(int(num_s * RATE)), np.int16)
    return torch.from_numpy(samples / np.float32(32768))


def with_made_once(make: Make, *tables: tuple[Any, str]) -> Make:
    """`make`, while these functions answer again what they answered before to the same arguments."""
    originals = [(module, name, getattr(module, name)) for module, name in tables]
    kept = [(module, name, functools.cache(function)) for module, name, function in originals]

    def put(functions: list[tuple[Any, str, Any]]) -> None:
        for module, name, function in functions:
            setattr(module, name, function)

    def make_with_tables() -> Any:
        put(kept)
        made = make()
        put(originals)
        return made

    return make_with_tables


def functional_resample(num_s: float) -> tuple[Make, Make]:
    from torchaudio import functional, transforms

    mel = transforms.MelSpectrogram(16_000, **MEL)

    def make() -> Any:
        return mel(functional.resample(read_sound(num_s), RATE, 16_000))

    return make, with_made_once(make, (functional.functional, "_get_sinc_resample_kernel"))


def transforms_in_getitem(num_s: float) -> tuple[Make, Make]:
    from torchaudio import functional, transforms

    def make() -> Any:
        sound = transforms.Resample(RATE, 16_000)(read_sound(num_s))
        return transforms.MelSpectrogram(16_000, **MEL)(sound)

    tables = (transforms._transforms, "_get_sinc_resample_kernel"), (functional, "melscale_fbanks")
    return make, with_made_once(make, *tables)


def librosa_mel(num_s: float) -> tuple[Make, Make]:
    import librosa

    def make() -> Any:
        sound, _ = librosa.load(sounds() / "0000.wav", sr=16_000, duration=num_s)
        return librosa.feature.melspectrogram(y=sound, sr=16_000, **MEL)

    return make, with_made_once(make, (librosa.filters, "mel"))


def pyav(convert: Callable[[Any], Callable[[Any], Any]], wanted: Callable[[int], bool]) -> Make:
    """A clip of which all frames are decoded, and those wanted converted."""
    import av

    def make() -> Any:
        to_array = convert(av)
        with av.open(str(videos() / "00.mp4")) as container:
            frames = [
                to_array(frame) for k, frame in enumerate(container.decode(video=0)) if wanted(k)
            ]
        kept = np.linspace(0, len(frames) - 1, NUM_FRAMES).astype(int)
        return np.stack([frames[k] for k in kept])

    return make


def by_to_ndarray(av: Any) -> Callable[[Any], Any]:
    return lambda frame: frame.to_ndarray(format="rgb24")


def by_one_scaler(av: Any) -> Callable[[Any], Any]:
    scaler = av.video.reformatter.VideoReformatter()
    return lambda frame: scaler.reformat(frame, format="rgb24").to_ndarray()


def pyav_scaler() -> tuple[Make, Make]:
    return pyav(by_to_ndarray, lambda k: True), pyav(by_one_scaler, lambda k: True)


def pyav_kept_only() -> tuple[Make, Make]:
    """The bound of frames that wait: the library's array cannot."""
    kept = set(np.linspace(0, 24 * 30 - 1, NUM_FRAMES).astype(int).tolist())
    return pyav(by_to_ndarray, lambda k: True), pyav(by_to_ndarray, kept.__contains__)


def torchcodec_threads() -> tuple[Make, Make]:
    """One thread, which is its default, against two on the one core that a worker has."""
    from torchcodec.decoders import VideoDecoder

    def make(num_threads: int) -> Any:
        decoder = VideoDecoder(videos() / "00.mp4", num_ffmpeg_threads=num_threads)
        return decoder.get_frames_at(np.linspace(0, 719, NUM_FRAMES).astype(int).tolist()).data

    return functools.partial(make, 1), functools.partial(make, 2)


CASES: dict[str, Callable[[], tuple[Make, Make]]] = {
    "functional-resample-5s": functools.partial(functional_resample, 5),
    "functional-resample-1s": functools.partial(functional_resample, 1),
    "transforms-in-getitem-5s": functools.partial(transforms_in_getitem, 5),
    "transforms-in-getitem-1s": functools.partial(transforms_in_getitem, 1),
    "librosa-mel-5s": functools.partial(librosa_mel, 5),
    "librosa-mel-1s": functools.partial(librosa_mel, 1),
    "pyav-scaler": pyav_scaler,
    "pyav-kept-only": pyav_kept_only,
    "torchcodec-threads": torchcodec_threads,
}


def took_ms(make: Make) -> float:
    started_at = time.perf_counter()
    make()
    return (time.perf_counter() - started_at) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES, required=True)
    flags = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    torch.set_num_threads(1)
    as_is, bound = CASES[flags.case]()
    for make in (as_is, bound):  # warm
        make()
    pairs = [(took_ms(as_is), took_ms(bound)) for _ in range(NUM_TURNS)]
    figures = {
        "case": flags.case,
        "as_is_ms": round(statistics.median(ours for ours, _ in pairs), 2),
        "bound_ms": round(statistics.median(theirs for _, theirs in pairs), 2),
        "ratio": round(statistics.median(ours / theirs for ours, theirs in pairs), 2),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
