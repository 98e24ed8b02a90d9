"""Make a folder of MP4 files: a bright square that moves right, left, up or down, one sub-folder each.

Job: clips of some seconds in 480p for train.py, on a machine without a data set.
Promise: the same files every time (seeded by class and number). Ban: no network.

usage: python examples/video/clips.py FOLDER [--count 48] [--seconds 8]
"""

import argparse
from pathlib import Path

import av
import numpy as np

WIDTH, HEIGHT, FRAMES_PER_S = 854, 480, 24
DIRECTIONS = {"right": (0, 1), "left": (0, -1), "down": (1, 0), "up": (-1, 0)}


def frames(direction, rng, num):
    """uint8, [HEIGHT, WIDTH, 3], `num` of them."""
    ground = rng.integers(40, 120, (HEIGHT // 8, WIDTH // 8 + 1, 3), dtype=np.uint8)
    ground = ground.repeat(8, 0).repeat(8, 1)[:HEIGHT, :WIDTH]
    place = rng.uniform((0, 0), (HEIGHT, WIDTH))
    for _ in range(num):
        place = (place + 4 * np.array(direction)) % (HEIGHT, WIDTH)
        y, x = place.astype(int)
        frame = ground.copy()
        frame[y : y + 60, x : x + 60] = 240
        yield frame


def write(folder, count, seconds):
    for number, (name, direction) in enumerate(DIRECTIONS.items()):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for k in range(count // len(DIRECTIONS)):
            with av.open(str(folder / name / f"{k:03}.mp4"), "w") as container:
                stream = container.add_stream("h264", rate=FRAMES_PER_S)
                stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
                rng = np.random.default_rng([number, k])
                for pixels in frames(direction, rng, FRAMES_PER_S * seconds):
                    frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
                    container.mux(stream.encode(frame))
                container.mux(stream.encode())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=48)
    parser.add_argument("--seconds", type=int, default=8)
    flags = parser.parse_args()
    write(flags.folder, flags.count, flags.seconds)
