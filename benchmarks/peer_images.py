"""Another package's way to what images.py does: photographs decoded, cropped, mirrored, normalised, batch 64.

The script is rewritten for that package, as its users write it; its pixels are others than
Pillow's. Each package is installed where it is needed, into a folder of its own beside the benchmarks' data, and
run with that number of its threads that suits it best, which is tried out each time.
Prints images_per_s. Ban: knows nothing of stoker.
"""

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from made_data import made_once
from one_side import Meter, num_usable_cores, print_line, rate_arguments
from photos import SIZE_WH, photo_folder

BATCH_SIZE, SIDE = 64, 224
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
TRY_S = 1.5
# What pip is asked for; without what they need where torch's environment has it.
PACKAGES = {
    "dali": ("nvidia-dali-cuda130==2.4.0",),
    "spdl": ("--no-deps", "spdl==0.8.0", "spdl_core==0.8.0", "spdl_io==0.8.0"),
    "ffcv": ("--no-deps", "ffcv==1.0.2", "terminaltables", "fastargs", "pytorch-pfn-extras"),
}
FFCV_MODE = "raw"  # as its authors advise where the processor is what is short
FFCV_NEEDS = ("libopencv-dev", "libturbojpeg0-dev", "pkg-config")  # of Debian, to compile it
Batches = Callable[[int], Iterator[Any]]  # of a number of threads


def install(peer: str, folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(folder)]
    if peer == "ffcv":
        subprocess.run(["apt-get", "install", "-qy", *FFCV_NEEDS], check=True, stdout=sys.stderr)
    subprocess.run([*pip, *PACKAGES[peer]], check=True, stdout=sys.stderr)


def start_again_with(peer: str) -> None:
    """Have the package in reach of this process, from its start on."""
    name = next(word for word in PACKAGES[peer] if not word.startswith("-"))
    folder = str(made_once(name.replace("==", "-"), lambda at: install(peer, at)))
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if folder not in path:
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, *filter(None, path)])
        os.execv(sys.executable, [sys.executable, *sys.argv])


def batches_of_dali(num_threads: int) -> Iterator[Any]:
    """As in NVIDIA's ImageNet example, on the CPU; decoded is only the part that is wanted."""
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    @pipeline_def(batch_size=BATCH_SIZE, num_threads=num_threads, device_id=None, seed=0)
    def train() -> Any:
        files, labels = fn.readers.file(
            file_root=str(photo_folder()), random_shuffle=True, name="files"
        )
        images = fn.decoders.image_random_crop(
            files, device="cpu", output_type=types.RGB, num_attempts=10
        )
        images = fn.resize(
            images, size=[SIDE, SIDE], interp_type=types.INTERP_TRIANGULAR, device="cpu"
        )
        images = fn.crop_mirror_normalize(
            images,
            dtype=types.FLOAT,
            output_layout="CHW",
            mean=[255 * each for each in MEAN],
            std=[255 * each for each in STD],
            mirror=fn.random.coin_flip(probability=0.5),
        )
        return images, labels

    pipeline = train()
    pipeline.build()
    batches = DALIGenericIterator(
        [pipeline], ["image", "label"], auto_reset=True, reader_name="files"
    )
    while True:
        for (batch,) in batches:
            yield batch["image"], batch["label"]


def batches_of_spdl(num_threads: int) -> Iterator[Any]:
    """As in SPDL's ImageNet example, the random part cut out and resized by FFmpeg; on the CPU."""
    import random

    import spdl.io
    import torch
    from spdl.pipeline import PipelineBuilder

    mean = torch.tensor(MEAN).view(1, 3, 1, 1) * 255
    std = torch.tensor(STD).view(1, 3, 1, 1) * 255
    paths = [str(path) for path in sorted(photo_folder().glob("*/*.jpg"))]
    folders = sorted({Path(path).parent.name for path in paths})
    labels = {path: folders.index(Path(path).parent.name) for path in paths}

    def endless_paths() -> Iterator[str]:
        while True:
            yield from random.sample(paths, len(paths))

    def decode(path: str) -> tuple[Any, int]:
        width, height, left, top = random_part(random.random)
        words = [f"crop={width}:{height}:{left}:{top}", f"scale={SIDE}:{SIDE}:flags=fast_bilinear"]
        words += ["hflip"] * (random.random() < 0.5) + ["format=rgb24"]
        packets = spdl.io.demux_image(path)
        return spdl.io.decode_packets(packets, filter_desc=",".join(words)), labels[path]

    def collate(pairs: list[tuple[Any, int]]) -> tuple[Any, Any]:
        buffer = spdl.io.convert_frames([frames for frames, _ in pairs])
        images = spdl.io.to_torch(buffer).permute(0, 3, 1, 2)
        return images.float().sub_(mean).div_(std), torch.tensor([label for _, label in pairs])

    builder = PipelineBuilder().add_source(endless_paths())
    builder = builder.pipe(decode, concurrency=num_threads).aggregate(BATCH_SIZE)
    pipeline = builder.pipe(collate).add_sink(2).build(num_threads=num_threads + 1)
    with pipeline.auto_stop():
        yield from pipeline


def random_part(draw: Callable[[], float]) -> tuple[int, int, int, int]:
    """Width, height, left and top of what RandomResizedCrop takes of a photograph."""
    width, height = SIZE_WH
    for _ in range(10):
        area = width * height * (0.08 + 0.92 * draw())
        ratio = math.exp(math.log(3 / 4) + draw() * 2 * math.log(4 / 3))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return w, h, int(draw() * (width - w + 1)), int(draw() * (height - h + 1))
    return height, height, (width - height) // 2, 0


def batches_of_ffcv(num_threads: int) -> Iterator[Any]:
    """As in FFCV's ImageNet example, on the CPU, of a file in its own format that holds pixels: nothing
    is decoded."""
    import numpy as np
    from ffcv.fields import IntField, RGBImageField
    from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, ToTensor, ToTorchImage
    from ffcv.writer import DatasetWriter
    from torchvision.datasets import ImageFolder

    def write(folder: Path) -> None:
        fields = {"image": RGBImageField(write_mode=FFCV_MODE), "label": IntField()}
        writer = DatasetWriter(str(folder / "photos.beton"), fields, num_workers=2)
        writer.from_indexed_dataset(ImageFolder(str(photo_folder())))

    file = made_once(f"ffcv-{FFCV_MODE}-{photo_folder().name}", write) / "photos.beton"
    mean, std = np.array(MEAN) * 255, np.array(STD) * 255
    steps = [
        RandomResizedCropRGBImageDecoder((SIDE, SIDE)),
        RandomHorizontalFlip(),
        NormalizeImage(mean, std, np.float32),
        ToTensor(),
        ToTorchImage(),
    ]
    loader = Loader(
        str(file),
        batch_size=BATCH_SIZE,
        num_workers=num_threads,
        order=OrderOption.RANDOM,
        os_cache=True,
        pipelines={"image": steps, "label": [IntDecoder(), ToTensor()]},
    )
    while True:
        yield from loader


PEERS: dict[str, Batches] = {
    "dali": batches_of_dali,
    "spdl": batches_of_spdl,
    "ffcv": batches_of_ffcv,
}


def measure(batches: Iterator[Any], warm_s: float, count_s: float) -> float:
    """Images a second."""
    meter = Meter(warm_s, count_s)
    for batch in batches:
        if meter.is_done(time.perf_counter()):
            return meter.figures(batch)["batches_per_s"] * BATCH_SIZE
    raise SystemExit("the peer has no more batches")


def main() -> None:
    parser = rate_arguments(__doc__)
    parser.add_argument("--peer", choices=PEERS, required=True)
    flags = parser.parse_args()
    start_again_with(flags.peer)
    make, num_cores = PEERS[flags.peer], num_usable_cores()
    most = num_cores if flags.peer == "ffcv" else 2 * num_cores  # numba refuses more
    tried = {num: measure(make(num), TRY_S, TRY_S) for num in range(1, most + 1)}
    best = max(tried, key=tried.__getitem__)
    rate = measure(make(best), flags.warm_s, flags.count_s)
    print_line({"images_per_s": rate, "num_threads": best, "tried": tried})


if __name__ == "__main__":
    main()
