"""How many workers' batches one host's thread can pass on: CPU time of the workers by that of the host.

A host of two CPUs in a network namespace, behind a link over TLS; the photographs of images.py, normalised
as float32, which is what costs a relay most for what it costs a worker. Once with parts coded, once as
they are. A host's thread is busy when it has so many workers: keeps_up_with_coded, keeps_up_with_raw.
Prints these, and the host's CPU seconds for a GB of batches. Needs root, ip and tc.
Not a plain script: plain torch has no hosts; there is one side only.
"""

import argparse

import behind_link
from images import Photos
from one_side import print_line
from photos import photo_folder
from processes import children, cpu_s_of, cpu_s_of_all
from torch.utils.data import DataLoader

NUM_CPUS = 2
NUM_WARM = 8


def measure(has_codec: bool, num_batches: int) -> tuple[float, float]:
    """Workers that a host keeps up with, and its CPU seconds for a GB."""
    with behind_link.fleet(1, num_each=NUM_CPUS, has_codec=has_codec) as fleet:
        with behind_link.stoker_with(fleet):
            loader = DataLoader(Photos(photo_folder(), num_rounds=1000), 32, num_workers=NUM_CPUS)
            iterator = iter(loader)
            behind_link.wait_away(iterator, NUM_CPUS)
            for _ in range(NUM_WARM):
                next(iterator)
            (host,) = children(fleet._process.pid)
            workers = [pid for job in children(host) for pid in children(job)]
            assert len(workers) == NUM_CPUS
            before = cpu_s_of(host), cpu_s_of_all(workers)
            nbytes = 0
            for _ in range(num_batches):
                images, _ = next(iterator)
                nbytes += images.nbytes
            host_s, workers_s = cpu_s_of(host) - before[0], cpu_s_of_all(workers) - before[1]
            del iterator
    return workers_s / host_s, host_s / (nbytes / 1e9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=60)
    flags = parser.parse_args()
    with behind_link.link():
        coded, coded_s = measure(True, flags.batches)
        raw, raw_s = measure(False, flags.batches)
    print_line(
        {
            "keeps_up_with_coded": coded,
            "keeps_up_with_raw": raw,
            "cpu_s_a_gb_coded": coded_s,
            "cpu_s_a_gb_raw": raw_s,
        }
    )


if __name__ == "__main__":
    main()
