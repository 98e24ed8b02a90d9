"""What a delivered gigabyte costs the training process: its own CPU seconds, all its threads.

Every core-second spent on receiving is one that the training step cannot have. Counted over the
batches of handover.py or images.py. Prints trainer_cpu_s_per_gb.
A plain script: it runs the same under python and under stoker.
"""

import handover
from one_side import measure_rate, print_line, rate_arguments


def main() -> None:
    parser = rate_arguments(__doc__)
    parser.add_argument("--work", choices=("handover", "images"), default="handover")
    flags = parser.parse_args()
    if flags.work == "images":
        import images  # torchvision only where it is needed

        loader = images.make_loader(flags.num_workers)
    else:
        loader = handover.make_loader(flags.num_workers)
    print_line(measure_rate(loader, flags))


if __name__ == "__main__":
    main()
