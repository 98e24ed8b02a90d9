"""Training on files of a web server that is 10 ms and 1 Gbit/s away, by `stoker run --mount PATH=URL`.

The server (far_origin.py) is nginx in a network namespace behind a link (far_link.py); the script is
storage_script.py. Its cases, each of which prints one JSON line:

    images-bytes   20,000 JPEGs of 40 KB by ImageFolder; a sample is its file's length and checksum, so that
                   the link is the limit. The first epoch: of the link's bytes; against the same script
                   that reads each file by fsspec in two workers, and in as many as suit it best; of these
                   rates what starting costs is left out. Later epochs: against the same files on the
                   local disk.
    images-decode  the same with 4,000 of them; a sample is decoded, resized and made a tensor
    quarter        images-bytes with a cache that has room for a quarter of the bytes: what a later epoch
                   asks of the origin. Pages of files are dropped between epochs, as if the kernel had no
                   memory for them: the mount's alone, for the origin's are on this machine, too
    shards         tar files of 200 MB, read as WebDataset does: the first epoch, of the link's bytes
    names          os.walk over 1,000 folders of 1,000 names: twice in one run, and in a second run, which
                   has the list that the first one has kept
    one            GETs of one file that 8 processes read at the same time

`of_link` is bytes of files / seconds of the epoch / (1 Gbit/s / 8): the link's own headers, and the start
of workers, count against stoker. What one plain GET of a large file reaches is link_gbit_per_s, and the
share of that of_get.
Nothing is remembered (--cache off): each epoch reads its files. In turn, after a short run.
Not a plain script: it runs one, under stoker with a mount, under stoker on local files, and under python.
"""

import argparse
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import far_origin
from far_link import FarLink, far_link
from one_side import num_usable_cores, print_line
from processes import cpu_s_of
from sides import run_side

SCRIPT = "storage_script.py"
BITS_PER_S, ROUND_TRIP_S = 1e9, 0.010
BYTES_PER_S = BITS_PER_S / 8
NUM_DECODED = 4_000  # three seconds of two cores, which are the limit then
TRIED_WORKERS = (2, 4, 8, 16)  # of the plain side
LIMIT_S = 300.0
READ = ("--cache", "off")  # flags of `stoker run`: files are read in every epoch
CACHE_FILES_FRAC = 0.5  # of --cache-memory (stoker.config.FILES_FRAC)


class Far(NamedTuple):
    """Where everything is, and how large. mount: a folder that is not there."""

    link: FarLink
    origin: far_origin.Origin
    photos: Path
    shards: Path
    photos_nbytes: int
    shards_nbytes: int
    mount: str
    flags: argparse.Namespace


Figures = dict[str, Any]


# -- sides ---------------------------------------------------------------------------------------


def mounted(far: Far, folder: str, *flags: str, more: tuple[str, ...] = (), root: str = "") -> Figures:  # fmt: skip
    """What the script prints, its folder being a mount. root: below it; more: flags of `stoker run`."""
    run_flags = (*READ, *more, "--mount", f"{far.mount}={far.origin.url(folder)}")
    words = ("--root", f"{far.mount}{root}", *flags)
    return run_side("stoker", SCRIPT, words, side_limit_s=LIMIT_S, run_flags=run_flags)


def local(folder: Path, *flags: str) -> Figures:
    words = ("--root", str(folder), *flags)
    return run_side("stoker", SCRIPT, words, side_limit_s=LIMIT_S, run_flags=READ)


def plain(far: Far, how: str) -> dict[int, float]:
    """Samples a second of the script as it is written without stoker, by its workers."""
    words = ("--work", "images", "--root", far.origin.url("photos"), "--through", "fsspec")
    words += ("--how", how, "--batches-each", str(far.flags.batches_each), "--num-workers")
    words += tuple(map(str, TRIED_WORKERS))
    epochs = run_side("plain", SCRIPT, words, side_limit_s=LIMIT_S)["epochs"]
    rates = (each["samples_per_s"] for each in epochs)
    return dict(zip(TRIED_WORKERS, rates, strict=True))


def later(line: Figures, key: str = "samples_per_s") -> float:
    return statistics.median(each[key] for each in line["epochs"][1:])


def of_link(nbytes: float, seconds: float) -> float:
    return nbytes / seconds / BYTES_PER_S


def later_of(ours: Figures, theirs: Figures) -> float:
    """Later epochs' rates. Both have to have seen the same samples."""
    checks = [[each["check"] for each in side["epochs"]] for side in (ours, theirs)]
    if checks[0] != checks[1]:
        raise SystemExit(f"what was read is not what lies there: {checks}")
    return later(ours) / later(theirs)


# -- cases ---------------------------------------------------------------------------------------


def images(far: Far, how: str, num_images: int) -> Figures:
    """num_images: of an epoch; 0: all."""
    words = ("--work", "images", "--how", how, "--num-images", str(num_images))
    words += ("--epochs", str(far.flags.epochs))
    before_s = cpu_s_of(far.link.pid), far.origin.cpu_s()
    ours = mounted(far, "photos", *words)
    after_s = cpu_s_of(far.link.pid), far.origin.cpu_s()
    theirs = local(far.photos, *words)
    tried = plain(far, how)
    first, local_first = ours["epochs"][0], theirs["epochs"][0]
    return {
        "first_per_s": first["samples_per_s"],
        "of_link": of_link(first["num"] * far_origin.PHOTO_NBYTES, first["seconds"]),
        "of_plain": first["samples_per_s"] / tried[2],
        "of_tuned_plain": first["samples_per_s"] / max(tried.values()),
        "of_local": later_of(ours, theirs),
        "later_per_s": later(ours),
        "local_first_per_s": local_first["samples_per_s"],
        "local_later_per_s": later(theirs),
        "first_busy_frac": first["busy_frac"],
        # Of this machine's, which no link and no server would take.
        "link_cores": (after_s[0] - before_s[0]) / first["seconds"],
        "origin_cores": (after_s[1] - before_s[1]) / first["seconds"],
        **{f"plain_{num}_per_s": rate for num, rate in tried.items()},
    }


def quarter(far: Far) -> Figures:
    memory = f"--cache-memory={far.photos_nbytes // 4 / CACHE_FILES_FRAC:.0f}"
    words = ("--work", "images", "--epochs", str(far.flags.epochs), "--forget")
    line = mounted(far, "photos", *words, more=(memory,))
    seconds, nbytes = later(line, "seconds"), later(line, "origin_nbytes")
    return {
        "origin_frac": nbytes / far.photos_nbytes,
        "of_link": of_link(nbytes, seconds),
        "later_per_s": later(line),
        "first_of_link": of_link(far.photos_nbytes, line["epochs"][0]["seconds"]),
        "later_busy_frac": later(line, "busy_frac"),
    }


def shards(far: Far) -> Figures:
    line = mounted(far, "shards", "--work", "shards")
    (first,) = line["epochs"]
    theirs = local(far.shards, "--work", "shards")
    if first["check"] != theirs["epochs"][0]["check"]:
        raise SystemExit("what was read is not what lies there")
    return {
        "of_link": of_link(far.shards_nbytes, first["seconds"]),
        "first_per_s": first["samples_per_s"],
        "local_per_s": theirs["epochs"][0]["samples_per_s"],
        "first_busy_frac": first["busy_frac"],
        "origin_frac": first["origin_nbytes"] / far.shards_nbytes,
    }


def names(far: Far) -> Figures:
    wanted = far_origin.NUM_FOLDERS * far_origin.NUM_NAMES
    lines = []
    with tempfile.TemporaryDirectory() as kept:
        for _ in range(2):
            more = ("--cache-disk", f"{kept}:1GB", "--cache-keep")
            lines.append(mounted(far, "names", "--work", "names", more=more))
            if lines[-1]["num_names"] != [wanted, wanted]:
                raise SystemExit(f"{lines[-1]['num_names']} names, where there are {wanted}")
    first_s, again_s = lines[0]["walks_s"]
    return {"first_s": first_s, "again_s": again_s, "second_run_s": lines[1]["walks_s"][0]}


def one(far: Far) -> Figures:
    """Of a photograph, and of a shard: there the bytes count, for it is more than one GET."""
    photo = next(iter(sorted(far.photos.rglob("*.jpg")))).relative_to(far.photos)
    shard = min(far.shards.glob("*.tar"))
    found: Figures = {}
    for folder, path, key in (
        ("noted-photos", f"/{photo}", "photo"), ("noted", f"/{shard.name}", "shard"),
    ):  # fmt: skip
        line = mounted(far, folder, "--work", "readers", root=path)
        asked = [nbytes for _, at, nbytes in far.origin.asked() if at == f"/{folder}{path}"]
        if line["num_different"] != 1:
            raise SystemExit("eight readers have not read the same")
        found |= {f"num_{key}_requests": len(asked), f"{key}_asked_nbytes": sum(asked)}
    found["shard_times"] = found["shard_asked_nbytes"] / shard.stat().st_size
    return found


CASES: dict[str, Callable[[Far], Figures]] = {
    "images-bytes": lambda far: images(far, "bytes", 0),
    "images-decode": lambda far: images(far, "decode", NUM_DECODED),
    "quarter": quarter,
    "shards": shards,
    "names": names,
    "one": one,
}


# -- the link itself -----------------------------------------------------------------------------


def link_figures(far: Far) -> Figures:
    """What a plain GET of a large file reaches, and what connecting takes: one round trip."""
    url = f"{far.origin.url('shards')}/{min(far.shards.glob('*.tar')).name}"
    command = ["curl", "-s", "-f", "-o", "/dev/null", "-o", "/dev/null", "-w", "%{speed_download} "]
    rates = subprocess.check_output([*command, url, url], text=True).split()  # one connection
    trips_s = []
    for _ in range(20):
        began_s = time.perf_counter()
        socket.create_connection((far.link.address, far_origin.FILES_PORT)).close()
        trips_s.append(time.perf_counter() - began_s)
        time.sleep(ROUND_TRIP_S)  # the packets of the one before have gone
    return {
        "link": far.link.how,
        "link_gbit_per_s": max(map(float, rates)) * 8 / 1e9,
        "round_trip_ms": statistics.median(trips_s) * 1e3,
        "num_cores": num_usable_cores(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--epochs", type=int, default=3, help="of runs that have later ones")
    parser.add_argument("--batches-each", type=int, default=3, help="of a worker, in plain runs")
    parser.add_argument("--num-photos", type=int, default=far_origin.NUM_PHOTOS)
    parser.add_argument("--num-shards", type=int, default=far_origin.NUM_SHARDS)
    flags = parser.parse_args()
    photos, kept = far_origin.photos(flags.num_photos), far_origin.shards(flags.num_shards)
    for folder in (photos, kept):
        far_origin.warm(folder)
    with (
        far_link(BITS_PER_S, ROUND_TRIP_S) as link,
        far_origin.origin(link, photos, kept) as origin,
        tempfile.TemporaryDirectory() as temp,
    ):
        sizes = (far_origin.nbytes_of(photos), far_origin.nbytes_of(kept))
        far = Far(link, origin, photos, kept, *sizes, f"{temp}/mount", flags)
        mounted(far, "photos", "--work", "images", "--num-images", "256")
        found = link_figures(far) | CASES[flags.case](far)
    if "of_link" in found:
        found["of_get"] = found["of_link"] * BITS_PER_S / 1e9 / found["link_gbit_per_s"]
    print_line(found)


if __name__ == "__main__":
    main()
