"""How long from the start of the process to the first batch: interpreter, imports, dataset, fork.

The dataset is that of epoch_gap.py. `--started` is the wall clock (seconds since 1970) at which
the caller started the command. Prints start_s, and iter_s: what the first iter() took of it.
A plain script: it runs the same under python and under stoker.
"""

import argparse
import time

from big_list import make_loader
from one_side import num_usable_cores, print_line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-workers", type=int, default=num_usable_cores(), metavar="W")
    parser.add_argument("--started", type=float, default=time.time())
    flags = parser.parse_args()
    loader = make_loader(flags.num_workers)
    began_s = time.time()
    batches = iter(loader)
    iter_s = time.time() - began_s
    next(batches)
    print_line({"start_s": time.time() - flags.started, "iter_s": iter_s})


if __name__ == "__main__":
    main()
