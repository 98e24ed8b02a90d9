"""Says what bounds a script, and which of its settings hurt. Pure."""

from stoker.doctor.facts import Facts
from stoker.doctor.predict import readable
from stoker.reports.summary import LIMIT_FRAC
from stoker.stalls.split import Split

BOUNDS = {
    "data_s": "data",
    "own_s": "data",
    "copy_s": "copies to the device",
    "communication_s": "communication with other ranks",
    "compute_s": "the model",
    "other_s": "Python in the training loop",
    "unseen_s": "the training loop",
}
START_FRAC = 0.1  # of an epoch, for workers that start
COPY_FRAC = 0.05
SMALL_STEP_S = 2e-3
TINY = 4  # samples of a batch
LARGE_NBYTES = 100 << 20


def bound_of(split: Split) -> tuple[str, float]:
    """Return what bounds steps with this split, and its share of them. Data does from a fifth on, as in the summary."""
    total_s = sum(split) or 1.0
    shares = {name: part_s / total_s for name, part_s in split._asdict().items()}
    if shares["data_s"] + shares["own_s"] >= LIMIT_FRAC:
        return "data", shares["data_s"] + shares["own_s"]
    largest = max(shares, key=lambda name: shares[name])
    return BOUNDS[largest], shares[largest]


def hurting(facts: Facts) -> list[str]:
    """Return a line for each setting of the script's that costs it time."""
    setup, plain, split = facts.setup, facts.plain, facts.plain.split
    wall_s = plain.wall_s or 1.0
    step_s = wall_s / max(1, plain.num)
    epoch_s = step_s * setup.num_samples / max(1, setup.batch_size)
    waits = (split.data_s + split.own_s) / wall_s
    num, cores = setup.num_workers, setup.cores
    found = []
    if num == 0 and waits >= LIMIT_FRAC and not setup.is_iterable:
        found.append("num_workers=0: samples are made in the training loop itself")
    is_busy = facts.costs is None or facts.costs.cpu_s > 0.5 * facts.costs.sample_s
    spins = plain.cpu_s > 1.2 * wall_s  # its threads do take cores
    if num > cores and is_busy:
        found.append(f"num_workers={num} on {_cores(cores)}: they take turns")
    elif num and spins and setup.num_threads > 1 and setup.num_threads + num > cores:
        threads = f"{setup.num_threads} threads of torch's and {num} workers on {_cores(cores)}"
        found.append(f"{threads}: try OMP_NUM_THREADS={max(1, cores - num)}")
    if setup.image_threads > 1 and num * setup.image_threads > cores:
        threads = f"OpenCV takes {setup.image_threads} threads in each worker"
        found.append(f"{threads}: try cv2.setNumThreads(0)")
    if setup.has_device and not setup.pin_memory and split.copy_s / wall_s >= COPY_FRAC:
        found.append("pin_memory=False: copies to the device wait for the processor")
    if (
        num
        and not setup.persistent_workers
        and epoch_s
        and facts.first_wait_s > START_FRAC * epoch_s
    ):
        starts = f"workers start anew in each epoch, {facts.first_wait_s:.1f} s"
        found.append(f"{starts}: persistent_workers=True")
    if num and setup.context != "fork":
        is_heavy = setup.pickled_nbytes >= LARGE_NBYTES
        heavy = f" ({readable(setup.pickled_nbytes)})" if is_heavy else ""
        starts = f"workers by {setup.context}: each imports the script and unpickles the dataset"
        found.append(f"{starts}{heavy}")
    if num * setup.listed_nbytes >= LARGE_NBYTES:
        copied = f"{num} workers copy {readable(num * setup.listed_nbytes)} of lists by reading"
        found.append(
            f"{copied}: not under stoker {'run' if setup.are_shared else 'on Python 3.12'}"
        )
    if setup.is_batched and setup.batch_size <= TINY and waits >= LIMIT_FRAC:
        found.append(f"batches of {setup.batch_size}: larger ones cost less per sample")
    if setup.prefetch_factor == 1 and waits >= COPY_FRAC:
        found.append("prefetch_factor=1: one slow sample is waited for; 2 is torch's default")
    if step_s < SMALL_STEP_S and waits < LIMIT_FRAC:
        short = f"{1e3 * step_s:.2g} ms a step of {setup.batch_size}"
        found.append(f"{short}: larger batches spend less on each step")
    if setup.world_size > 1 and split.communication_s / wall_s >= COPY_FRAC:
        found.append("ranks wait for each other: stoker probe tells what --gradients brings")
    return found


def _cores(num: int) -> str:
    return f"{num} core{'s' * (num > 1)}"
