"""Work whose memory pairs.py watches from outside: one epoch over the photographs of images.py.

`--keep labels` is `[y for _, y in loader]`, where a kept label must not keep its images.
Prints what was delivered; the peak of all processes together is added by pairs.py.
A plain script: it runs the same under python and under stoker.
"""

import argparse

from images import make_loader
from one_side import num_usable_cores, print_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-workers", type=int, default=num_usable_cores(), metavar="W")
    parser.add_argument("--keep", choices=("nothing", "labels"), default="nothing")
    parser.add_argument("--num-rounds", type=int, default=2, help="times 1,024 photographs")
    flags = parser.parse_args()
    loader = make_loader(flags.num_workers, flags.num_rounds)
    keep_labels = flags.keep == "labels"
    num_batches = len([y for _, y in loader]) if keep_labels else sum(1 for _ in loader)
    print_line({"num_batches": num_batches})


if __name__ == "__main__":
    main()
