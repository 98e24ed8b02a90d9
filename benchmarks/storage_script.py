"""What storage.py runs: a training script's loader over files in a folder, and little else.

    images   torchvision's ImageFolder, shuffled, batches of 64; --how bytes: a sample is its file's length
             and checksum; decode: Pillow, Resize(64), ToTensor. --through fsspec: the same files as URLs, each
             read by fsspec's HTTP file system, with one request, in the workers
    shards   an IterableDataset over tar files, which workers share, read in order as WebDataset does
    names    os.walk over all of the folder, twice
    readers  8 processes that read the same file at once

Prints one JSON line. Rates are those of whole epochs, from asking the loader for an iterator to its last
batch. With --batches-each an epoch is so many batches of each worker, and of each the first one is not
counted: a rate without what starting costs.
A plain script: it runs the same under python and under stoker. Only where a run has mounts, it asks what
has come from their origin.
"""

import argparse
import multiprocessing
import os
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from one_side import num_usable_cores, print_line
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, get_worker_info
from torchvision import transforms
from torchvision.datasets import ImageFolder

BATCH_SIZE = 64
NUM_READERS = 8
DECODED = transforms.Compose([transforms.Resize((64, 64)), transforms.ToTensor()])


def seen(data: bytes) -> torch.Tensor:
    """A file's length and checksum."""
    return torch.tensor([len(data), zlib.crc32(data)])


def load_bytes(path: str) -> torch.Tensor:
    with open(path, "rb") as file:  # noqa: PTH123  # as torchvision's own loader
        return seen(file.read())


def load_image(path: str) -> Image.Image:
    with open(path, "rb") as file:  # noqa: PTH123  # as torchvision's own loader
        return Image.open(file).convert("RGB")


class Urls(Dataset):
    """ImageFolder's samples, where the folder is a URL."""

    def __init__(self, root: str, how: str) -> None:
        fs, self.how = web(), how
        folders = sorted(each["name"] for each in fs.ls(f"{root}/") if each["type"] == "directory")
        self.samples = [
            (each, label)
            for label, folder in enumerate(folders)
            for each in sorted(fs.ls(folder, detail=False))
        ]
        self.fs: Any = None

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        import io

        self.fs = self.fs or web()  # of each worker its own
        url, label = self.samples[index]
        data = self.fs.cat_file(url)
        if self.how == "bytes":
            return seen(data), label
        return DECODED(Image.open(io.BytesIO(data)).convert("RGB")), label


def web() -> Any:
    import fsspec

    return fsspec.filesystem("http", skip_instance_cache=True)


class Shards(IterableDataset):
    def __init__(self, root: str) -> None:
        self.paths = sorted(str(path) for path in Path(root).glob("*.tar"))

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        for path in self.paths[info.id :: info.num_workers] if info else self.paths:
            with tarfile.open(path, "r|") as tar:
                for member in tar:
                    yield seen(tar.extractfile(member).read())


# -- epochs --------------------------------------------------------------------------------------


def origin_nbytes() -> int:
    """What has come from the origins of this run's mounts; 0 where it has none."""
    name = os.environ.get("STOKER_STORAGE", "").partition("\n")[0]
    if not name:
        return 0
    from stoker.storage.asking.control import ask

    return ask(name, {"stats": 1})["remote_nbytes"]


def busy_s() -> float:
    """CPU seconds that all of this machine has used; of its cores."""
    user, nice, system, _, _, irq, softirq, *_ = map(
        int, Path("/proc/stat").read_text().split()[1:9]
    )
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def forget(paths: list[str]) -> None:
    """Have the kernel drop these files' pages: as if they were too many for its memory."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def epoch(loader: DataLoader, num_uncounted: int = 0) -> dict[str, float]:
    """How fast it went. num_uncounted: batches; check: the same number for the same samples."""
    busy_before_s, nbytes_before = busy_s(), origin_nbytes()
    began_s = counted_from_s = time.perf_counter()
    num = check = 0
    for number, batch in enumerate(loader, 1):
        samples = batch[0] if isinstance(batch, (list, tuple)) else batch
        check += checked(samples)
        num += len(samples)
        if number == num_uncounted:
            counted_from_s, num = time.perf_counter(), 0
    ended_s = time.perf_counter()
    return {
        "samples_per_s": num / (ended_s - counted_from_s),
        "seconds": ended_s - counted_from_s,
        "num": num,
        "check": check,
        "origin_nbytes": origin_nbytes() - nbytes_before,
        "busy_frac": (busy_s() - busy_before_s) / (ended_s - began_s) / num_usable_cores(),
    }


def checked(samples: torch.Tensor) -> int:
    return int(samples[:, 1].sum() if samples.dim() == 2 else samples.sum(dtype=torch.float64))


def images(flags: argparse.Namespace) -> dict[str, Any]:
    if flags.through:
        dataset: Any = Urls(flags.root, flags.how)
        paths = []
    else:
        loader, transform = (load_bytes, None) if flags.how == "bytes" else (load_image, DECODED)
        dataset = ImageFolder(flags.root, transform, loader=loader)
        paths = [path for path, _ in dataset.samples]
    torch.manual_seed(0)
    found = []
    for num_workers in flags.num_workers:
        num = flags.num_images or len(dataset)
        if flags.batches_each:
            num = flags.batches_each * num_workers * BATCH_SIZE
        some = Subset(dataset, range(num)) if num < len(dataset) else dataset
        batches = DataLoader(some, BATCH_SIZE, shuffle=True, num_workers=num_workers)
        for _ in range(flags.epochs):
            if found and flags.forget:
                forget(paths)
            found.append(epoch(batches, num_workers if flags.batches_each else 0))
    return {"epochs": found}


def shards(flags: argparse.Namespace) -> dict[str, Any]:
    (num_workers,) = flags.num_workers
    batches = DataLoader(Shards(flags.root), BATCH_SIZE, num_workers=num_workers)
    return {"epochs": [epoch(batches) for _ in range(flags.epochs)]}


def names(flags: argparse.Namespace) -> dict[str, Any]:
    walks_s, nums = [], []
    for _ in range(2):
        began_s = time.perf_counter()
        nums.append(sum(len(files) for _, _, files in os.walk(flags.root)))
        walks_s.append(time.perf_counter() - began_s)
    return {"walks_s": walks_s, "num_names": nums}


def _read_at_once(path: str, barrier: Any, found: Any) -> None:
    barrier.wait()
    with open(path, "rb") as file:  # noqa: PTH123  # as torchvision's own loader
        check = 0
        while piece := file.read(1 << 20):
            check = zlib.crc32(piece, check)
    found.put(check)


def readers(flags: argparse.Namespace) -> dict[str, Any]:
    fork = multiprocessing.get_context("fork")
    barrier, found = fork.Barrier(NUM_READERS), fork.SimpleQueue()
    began = [fork.Process(target=_read_at_once, args=(flags.root, barrier, found)) for _ in range(NUM_READERS)]  # fmt: skip
    for process in began:
        process.start()
    checks = {found.get() for _ in began}
    for process in began:
        process.join()
    return {"num_different": len(checks)}


WORKS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "images": images, "shards": shards, "names": names, "readers": readers,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", choices=WORKS, required=True)
    parser.add_argument("--root", required=True, help="a folder; of readers a file")
    parser.add_argument("--how", choices=("bytes", "decode"), default="bytes")
    parser.add_argument("--through", choices=("", "fsspec"), default="", help="--root is a URL")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--num-images", type=int, default=0, help="of an epoch; 0: all")
    parser.add_argument("--batches-each", type=int, default=0, help="of each worker; 0: all")
    each = "one after the other, if there are several"
    parser.add_argument("--num-workers", type=int, nargs="+", default=[2], metavar="W", help=each)
    parser.add_argument("--forget", action="store_true", help="drop pages before later epochs")
    flags = parser.parse_args()
    print_line(WORKS[flags.work](flags))


if __name__ == "__main__":
    main()
