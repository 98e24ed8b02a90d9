"""The figures as a table: which script, with which flags, held to which bar. Pure.

The bars are those of docs/benchmarks.md. pairs.py measures what stands here, table.py prints it.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from made_data import data_dir

Line = dict[str, float]  # what a benchmark script printed
Pair = dict[str, Line]  # one line of each side: "plain", "stoker", perhaps "bare"


class How(StrEnum):
    """What is computed from a pair, of one key."""

    RATIO = "ratio"  # stoker / other
    SPEED = "speed"  # other / stoker, for times: 2.0 is twice as fast
    MORE = "more"  # stoker - other
    BEYOND_THRICE = "beyond thrice"  # stoker - 3 * other
    VALUE = "value"  # stoker alone


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One number with its bar: the median over the pairs must reach it."""

    key: str
    bar: float
    at_least: bool
    how: How = How.RATIO
    other: str = "plain"
    unit: str = "x"
    what: str = "torch"
    other_key: str = ""  # of the other side, if it is another

    def of(self, pair: Pair) -> float:
        ours, theirs = pair["stoker"][self.key], pair[self.other][self.other_key or self.key]
        match self.how:
            case How.RATIO:
                return ours / theirs
            case How.SPEED:
                return theirs / ours
            case How.MORE:
                return ours - theirs
            case How.BEYOND_THRICE:
                return ours - 3 * theirs
            case How.VALUE:
                return ours

    def covers(self, pair: Pair) -> bool:
        """Whether both sides measured this key in that pair."""
        return self.key in pair["stoker"] and (self.other_key or self.key) in pair[self.other]

    def is_met(self, median: float) -> bool:
        return median >= self.bar if self.at_least else median <= self.bar

    def bar_text(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.bar:g}{self.unit}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """One more side under stoker, run in another way."""

    name: str
    run_flags: tuple[str, ...] = ()  # of `stoker run`
    flags: tuple[str, ...] = ()  # of the script


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One way to run one script; a figure has one or several."""

    script: str
    checks: tuple[Check, ...]
    label: str = ""
    flags: tuple[str, ...] = ()
    quick_flags: tuple[str, ...] = ()  # come after `flags` with --quick, and win
    tune_key: str = ""  # find the num_workers that makes this largest, for each side
    tune_flags: tuple[str, ...] = ()
    plain_tune_flags: tuple[str, ...] = ()  # come after both, and win
    num_tuning_rounds: int = 2  # the best run stands for a candidate: noise only ever slows
    ceiling: str = ""  # a script that is measured beside the two sides, as "bare"
    peer: str = ""  # a package whose way to the same is measured beside them: peer_images.py
    watches_memory: bool = False
    stamps_start: bool = False  # pass --started
    limit_s: float = 300.0  # the slowest of a usual side takes half a minute
    is_alone: bool = False  # measures a part of stoker that plain torch has nothing like
    takes_turns: bool = False  # see turns.py
    run_flags: tuple[str, ...] = ()  # of `stoker run`
    plain_flags: tuple[str, ...] = ()  # of the script; come after `flags`, and win
    stoker_flags: tuple[str, ...] = ()
    beside: Beside | None = None
    # Of stoker only what suits torch best is tried, and one worker a core.
    is_slow_to_tune: bool = False
    leaves_something: bool = False  # for the next run: one goes before the pairs


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    name: str
    work: str
    cases: tuple[Case, ...]
    num_pairs: int = 5
    num_quick_pairs: int = 2
    needs_gpu: bool = False


def seconds(warm_s: float, count_s: float) -> tuple[str, ...]:
    return ("--warm-s", str(warm_s), "--count-s", str(count_s))


def at_least(bar: float, key: str, **more: str) -> Check:
    return Check(key=key, bar=bar, at_least=True, **more)


def at_most(bar: float, key: str, **more: str) -> Check:
    return Check(key=key, bar=bar, at_least=False, **more)


def rate(script: str, key: str, bar: float) -> Case:
    """A case of the common kind: throughput, each side with its best num_workers."""
    return Case(
        script=script,
        checks=(at_least(bar, key),),
        flags=seconds(1, 4),
        quick_flags=seconds(0.5, 1.5),
        tune_key=key,
        tune_flags=seconds(0.5, 1.5),
    )


def handed_over(script: str, work: str, bar: float, bare_bar: float = 0.0) -> Case:
    """A case of `rate`, for one --work. bare_bar: against bare_handover.py; 0: not compared."""
    label = f"torch, {work}"
    checks = [at_least(bar, "batches_per_s", what=label)]
    if bare_bar:
        checks.append(at_least(bare_bar, "batches_per_s", other="bare", what=f"bare loop, {work}"))
    return replace(
        rate(script, "batches_per_s", bar),
        label=work,
        flags=("--work", work, *seconds(1, 4)),
        tune_flags=("--work", work, *seconds(0.5, 1.5)),
        ceiling="bare_handover.py" if bare_bar else "",
        checks=tuple(checks),
    )


def gap(num_workers: int) -> Case:
    label = f"W={num_workers}"
    return Case(
        script="epoch_gap.py",
        label=label,
        flags=("--num-workers", str(num_workers)),
        quick_flags=("--num-gaps", "1"),
        checks=(
            at_most(1.0, "gap_ms", what=f"torch, {label}"),
            at_most(100, "gap_ms", how=How.VALUE, unit=" ms", what=f"stoker, {label}"),
        ),
    )


def cpu_cost(work: str) -> Case:
    return Case(
        script="trainer_cpu.py",
        label=work,
        flags=("--work", work, *seconds(1, 4)),
        quick_flags=seconds(0.5, 1),
        checks=(at_most(0.5, "trainer_cpu_s_per_gb", what=f"torch, {work}"),),
    )


def peak(keep: str) -> Case:
    return Case(
        script="memory.py",
        label=f"keep {keep}",
        flags=("--keep", keep),
        quick_flags=("--num-rounds", "1"),
        checks=(at_most(1.1, "peak_pss_nbytes", what=f"torch, keep {keep}"),),
        watches_memory=True,
    )


def num_epochs(num: int) -> tuple[str, ...]:
    return ("--num-epochs", str(num))


def remembered(case: str, bar: float, num_samples: int, num_warm: int = 3) -> Case:
    """Epochs once all is kept against torch's; `first`: the first one against --cache off.

    num_samples: in an epoch; num_warm: epochs of stoker's until all is kept, and until fewer hits are
    made again, which a few dear samples take long to reach: 4,096 hits. Each epoch of torch's takes as
    long as its first.
    """
    first = at_least(0.97, "first_per_s", other="off", what=f"--cache off, {case}, first epoch")
    return Case(
        script="remembered.py",
        label=case,
        flags=("--case", case, "--num-samples", str(num_samples)),
        plain_flags=num_epochs(1),
        stoker_flags=num_epochs(num_warm + 3),
        tune_key="later_per_s",
        tune_flags=("--num-later", "3", *num_epochs(8)),
        plain_tune_flags=(*num_epochs(1), "--num-samples", str(max(num_samples // 4, 16))),
        num_tuning_rounds=1,
        is_slow_to_tune=True,
        beside=Beside(name="off", run_flags=("--cache", "off"), flags=num_epochs(1)),
        limit_s=600,
        checks=(at_least(bar, "later_per_s", what=f"torch, {case}"), first),
    )


def early(case: str, num: int, bar: float) -> Case:
    """All epochs together, from the first iter() on."""
    label = f"{case}, {num} epochs"
    return Case(
        script="early.py",
        label=label,
        flags=("--case", case, *num_epochs(num)),
        checks=(at_least(bar, "loop_s", how=How.SPEED, what=f"torch, {label}"),),
    )


AT_MOST_A_DATASET = Check(
    key="datasets",
    bar=1.3,
    at_least=False,
    how=How.VALUE,
    what="of a dataset, beyond the trainer's memory",
)


def workers(
    case: str, num_workers: int, *checks: Check, flags: tuple[str, ...] = (), how: str = ""
) -> Case:
    """How workers start, by this Python's default method. how: for the label."""
    label = f"{case}, {num_workers} workers{how}"
    return Case(
        script="workers.py",
        label=label,
        flags=("--case", case, "--num-workers", str(num_workers), *flags),
        checks=tuple(replace(check, what=f"{check.what}, {label}") for check in checks),
        limit_s=580.0,
    )


def growth(num_workers: int, method: str, at_most_gb: float) -> Case:
    check = Check(
        key="growth_gb", bar=at_most_gb, at_least=False, how=How.VALUE, unit=" GB", what="more"
    )
    flags = ("--method", method, "--num", "2000000")
    return workers("growth", num_workers, check, flags=flags, how=f" by {method}")


def remembered_half() -> Case:
    """With memory for half of the samples."""
    check = at_least(1.8, "later_per_s", what="torch, room for half of them")
    return replace(
        remembered("images-val", 1.8, NUM_HALVED),
        label="half",
        run_flags=("--cache-memory", f"{NUM_HALVED // 2 * IMAGE_KB}K"),
        beside=None,
        checks=(check,),
    )


def remembered_cold(case: str, num_samples: int) -> Case:
    """The first epoch of a process that finds what another has kept, against later ones."""
    disk = f"{data_dir() / f'kept-{case}'}:40G"
    check = at_least(
        0.8, "first_per_s", other="warm", other_key="later_per_s", what=f"a later epoch, {case}"
    )
    return replace(
        remembered(case, 1.0, num_samples),
        label=f"{case}, kept",
        run_flags=("--cache-disk", disk, "--cache-keep"),
        stoker_flags=num_epochs(4),
        beside=Beside(name="warm", flags=num_epochs(6)),
        leaves_something=True,
        checks=(check,),
    )


# Files come again in it: what a second epoch would find remembered is not to be.
FIRST_EPOCH = ("--cache", "off")


def fast_images(case: str, bar: float) -> Case:
    """An epoch that does not end, each side with its best num_workers."""
    script = rate("fast_images.py", "images_per_s", bar)
    check = at_least(bar, "images_per_s", what=f"torch, {case}")
    of = ("--case", case)
    return replace(
        script,
        label=case,
        run_flags=FIRST_EPOCH,
        flags=(*of, *seconds(2, 5)),
        tune_flags=(*of, *seconds(1, 3)),
        num_tuning_rounds=1,
        checks=(check,),
    )


def fast_images_nothing(case: str) -> Case:
    """What looking for something to make faster costs."""
    off = f"--fast off, {case}"
    return replace(
        fast_images(case, 1.0),
        tune_key="",
        beside=Beside(name="off", run_flags=(*FIRST_EPOCH, "--fast", "off")),
        checks=(at_least(0.99, "images_per_s", other="off", what=off),),
    )


def audio_tables(case: str, bar: float) -> Case:
    """An epoch that does not end, each side with its best num_workers."""
    of = ("--case", case)
    return replace(
        rate("mel.py", "sounds_per_s", bar),
        label=case,
        run_flags=FIRST_EPOCH,
        flags=(*of, *seconds(2, 5)),
        tune_flags=(*of, *seconds(1, 3)),
        num_tuning_rounds=1,
        checks=(at_least(bar, "sounds_per_s", what=f"torch, {case}"),),
    )


def beside_peer(peer: str, bar: float) -> Case:
    """Photographs under stoker, and as another package's users write it."""
    return replace(
        IMAGES,
        label=peer,
        ceiling="",
        peer=peer,
        checks=(at_least(bar, "images_per_s", other=peer, what=f"{peer}, rewritten"),),
    )


NUM_HALVED, IMAGE_KB = 6_144, 154  # as they are kept

IMAGES = Case(
    script="images.py",
    run_flags=FIRST_EPOCH,
    flags=seconds(1.5, 5),
    quick_flags=seconds(0.5, 2),
    tune_key="images_per_s",
    tune_flags=seconds(1, 3),
    num_tuning_rounds=1,  # each takes a minute
    ceiling="bare_loop.py",
    checks=(
        at_least(1.9, "images_per_s"),
        at_least(1.6, "images_per_s", other="bare", what="bare loop"),
    ),
)

START = Case(
    script="start.py",
    stamps_start=True,
    checks=(
        at_most(0.2, "start_s", how=How.MORE, unit=" s", what="more than torch"),
        at_most(0.1, "iter_s", how=How.MORE, unit=" s", what="more than torch, iter()"),
    ),
)

ITERABLE = Case(
    script="iterable.py",
    flags=("--num-workers", "2", *seconds(1, 4)),
    quick_flags=seconds(0.5, 1.5),
    checks=(at_least(1.2, "batches_per_s"),),
)

WORKERS0_VAL = Case(
    script="workers0_val.py",
    quick_flags=("--num-epochs", "1"),
    checks=(at_least(1.8, "images_per_s"),),
)

WORKERS0_TENSORS = Case(
    script="workers0_tensors.py",
    quick_flags=("--num-epochs", "1"),
    checks=(at_least(1.3, "images_per_s"),),
)

VERIFY = Case(
    script="verify_cost.py",
    checks=(
        at_most(
            10, "seconds", how=How.BEYOND_THRICE, unit=" s", what="beyond 3 x the plain batches"
        ),
    ),
)


def alone(bar: float, key: str, unit: str, what: str) -> Check:
    """A number of a case that `is_alone`."""
    return at_least(bar, key, how=How.VALUE, other="stoker", unit=unit, what=what)


def recording(case: str) -> Case:
    """What it costs a loop that it is looked at: with and without, in turns, in one process."""
    what = f"of the steps, {case}"
    check = at_most(0.5, "cost_percent", how=How.VALUE, other="stoker", unit=" %", what=what)
    flags = ("--case", case)
    return Case(
        script="recording.py", label=case, flags=flags, quick_flags=("--windows", "6"), is_alone=True, limit_s=500.0,
        checks=(check,),
    )  # fmt: skip


def shown(case: str, **bars: tuple[float, str, str]) -> Case:
    """What shows a day of 256 workers. bars: by key: at most so much, of a unit, of what."""
    checks = tuple(
        at_most(bar, key, how=How.VALUE, other="stoker", unit=unit, what=what)
        for key, (bar, unit, what) in bars.items()
    )
    return Case(
        script="live_page.py", label=case, flags=("--case", case), is_alone=True, limit_s=600.0, checks=checks
    )  # fmt: skip


def predicted(case: str) -> Case:
    """What `stoker doctor` predicts, and what stoker then delivers."""
    what = f"of its predictions within a fifth, {case}"
    check = alone(0.8, "within_frac", "", what)
    flags = ("--case", case)
    return Case(
        script="doctor.py", label=case, flags=flags, is_alone=True, limit_s=900.0, checks=(check,)
    )


LOSSLESS = Case(
    script="lossless.py",
    quick_flags=("--num-rounds", "5"),
    is_alone=True,
    checks=(
        alone(3.95, "bytes_ratio", "x", "fewer bytes"),
        alone(3, "encode_gb_per_s", " GB/s", "encode and verify"),
        alone(8, "decode_gb_per_s", " GB/s", "decode"),
    ),
)


INGEST = Case(
    script="ingest.py",
    quick_flags=("--seconds", "0.5", "--rounds", "2"),
    is_alone=True,
    checks=(alone(0.8, "of_bare", "x", "a bare recv_into loop"),),
)


def beside(peer: str, times: float, what: str) -> Case:
    """A case of `ingest`: another way to get batches from other processes, both in turn.

    The bare loop is held to the same bar: where it misses too, this machine cannot give it.
    """
    return Case(
        script="ingest_beside.py",
        label=peer,
        flags=("--peer", peer),
        quick_flags=("--seconds", "1", "--rounds", "1"),
        is_alone=True,
        checks=(
            alone(times, "times", "x", what),
            alone(times, "bare_times", "x", f"{what}: the bare loop itself"),
            alone(0.8, "of_bare", "x", f"the bare loop, beside {peer}"),
            alone(times, "times_a_cpu_s", "x", f"{what}, a CPU second"),
        ),
    )


TRAINER_CPU_REMOTE = Case(
    script="trainer_cpu_remote.py",
    quick_flags=("--seconds", "1", "--rounds", "2"),
    is_alone=True,
    checks=(
        Check(
            key="of_torch",
            bar=0.1,
            at_least=False,
            how=How.VALUE,
            other="stoker",
            what="torch's own loader",
        ),
    ),
)

SCALE = Case(
    script="scale.py",
    quick_flags=("--seconds", "1"),
    is_alone=True,
    checks=(
        alone(0.95, "of_linear_64", "x", "linear, 64 workers"),
        Check(
            key="trainer_cpu_ms_64", bar=0.3, at_least=False, how=How.VALUE, other="stoker", unit=" ms",
            what="trainer CPU a batch",
        ),
    ),
)  # fmt: skip


THIN_LINK = Case(
    script="thin_link.py",
    quick_flags=("--seconds", "2", "--rounds", "1"),
    is_alone=True,
    checks=(alone(3.5, "gain", "x", "the same, not coded"),),
)


def all_reduce(rate: str, over_fp32: float, over_fp16: float) -> Case:
    return Case(
        script="all_reduce.py",
        label=rate,
        flags=("--rate", rate, "--rounds", "1"),
        is_alone=True,
        checks=(
            alone(over_fp32, "gain_over_fp32", "x", f"fp32, {rate}"),
            alone(over_fp16, "gain_over_fp16", "x", f"the fp16 hook, {rate}"),
        ),
    )


def ddp_step(rate: str, compute: str, bar: float, num_rounds: int = 5) -> Case:
    where = rate or "no limit"
    return Case(
        script="ddp_step.py",
        label=f"{where}, {compute}",
        flags=("--rate", rate, "--compute", compute, "--rounds", str(num_rounds)),
        is_alone=True,
        checks=(alone(bar, "gain", "x", f"fp32, {where}, compute: {compute}"),),
    )


GRADIENT_KERNELS = Case(
    script="gradient_kernels.py",
    is_alone=True,
    checks=(
        alone(6, "quantise_int4", " GB/s", "quantise, 4 bit"),
        alone(6, "quantise_int8", " GB/s", "quantise, 8 bit"),
        alone(12, "dequantise_add_int4", " GB/s", "dequantise and add, 4 bit"),
        alone(12, "dequantise_add_int8", " GB/s", "dequantise and add, 8 bit"),
    ),
)


def of_copy(what: str) -> tuple[Check, ...]:
    key = what.replace(" and ", "_")
    found = [
        alone(1, f"{key}_int{bits}_of_copy", "x", f"a copy of the same, {what}, {bits} bit")
        for bits in (4, 8)
    ]
    return tuple(found)


GRADIENT_KERNELS_GPU = Case(
    script="gradient_kernels_gpu.py",
    is_alone=True,
    checks=(*of_copy("quantise"), *of_copy("dequantise"), *of_copy("dequantise and add")),
)

GPU_OFFLOAD = Case(
    script="gpu_offload.py",
    quick_flags=("--rounds", "1"),
    is_alone=True,
    limit_s=600.0,
    checks=(
        alone(1.1, "same_gain", "x", "torch on two cores, the same two"),
        alone(4, "ray_gain", "x", "torch on two cores, the other cores on Ray"),
        alone(0.9, "of_gpu", "x", "the step alone, the other cores on Ray"),
    ),
)


def above(key: str, bar: float, unit: str, what: str) -> Check:
    return at_most(bar, key, how=How.VALUE, other="stoker", unit=unit, what=what)


def accuracy(work: str, *schemes: str) -> Case:
    return Case(
        script="gradient_accuracy.py",
        label=work,
        flags=("--work", work, "--schemes", "fp32", *schemes),
        quick_flags=("--seeds", "1"),
        is_alone=True,
        checks=(
            above(f"{work}_8bit_above_spreads", 1, " spreads", f"above fp32, 8 bit, {work}"),
            above(f"{work}_4bit_above_percent", 0.5, " %", f"above fp32, 4 bit, {work}"),
        ),
    )


# Beside the others, for a run of all of them takes too long.
FEEDBACK = Case(
    script="gradient_accuracy.py",
    label="text, error feedback",
    flags=("--work", "text", "--schemes", "fp32", "4bit+ef"),
    quick_flags=("--seeds", "1"),
    is_alone=True,
    checks=(above("text_4bit+ef_above_percent", 0.5, " %", "above fp32, 4 bit + ef, text"),),
)


GRADIENT_BUDGET = Case(
    script="gradient_budget.py",
    quick_flags=("--budget-s", "8"),
    is_alone=True,
    checks=(
        above("of_powersgd", 1, "x", "PowerSGD's loss"),
        alone(1, "gain_over_fp16", "x", "sooner at the fp16 hook's loss"),
    ),
)


OFFLOAD = Case(
    script="offload.py",
    quick_flags=("--seconds", "3", "--rounds", "1"),
    is_alone=True,
    checks=(alone(1.8, "gain", "x", "torch on the trainer's core"),),
)


KILL = Case(
    script="kill.py",
    quick_flags=("--seconds", "8"),
    is_alone=True,
    checks=(alone(0.9, "of_survivors", "x", "what the survivors could give"),),
)


JOIN = Case(
    script="join.py",
    quick_flags=("--rounds", "1"),
    is_alone=True,
    checks=(
        Check(
            key="first_s", bar=5, at_least=False, how=How.VALUE, other="stoker", unit=" s",
            what="to the first batch",
        ),
    ),
)  # fmt: skip


MACHINE_MEMORY = Case(
    script="machine_memory.py",
    is_alone=True,
    checks=(above("per_cpu_mib", 60, " MiB", "a CPU, beyond an idle node"),),
)


RELAY = Case(
    script="relay.py",
    quick_flags=("--batches", "20"),
    is_alone=True,
    checks=(alone(8, "keeps_up_with_coded", "", "workers that one host keeps up with"),),
)


# Of one side only, and with minutes to wait.

BARE_INSTALL = Case(
    script="bare_install.py",
    quick_flags=("--rounds", "1"),
    is_alone=True,
    limit_s=900,
    checks=(
        above("all_s", 30, " s", "from pip install of the wheel to the first batch"),
        above("first_s", 10, " s", "of it from the command's start"),
    ),
)

DEMO = Case(
    script="fresh_clone.py",
    flags=("--what", "demo"),
    is_alone=True,
    limit_s=1200,
    checks=(
        above("beyond_torch_s", 180, " s", "beyond torch's own download"),
        alone(1.8, "epochs_speedup", "x", "its samples/s, stoker / torch"),
        alone(1.5, "command_speedup", "x", "its whole command, torch's s / stoker's"),
    ),
)


def tier(label: str, what: str, limit_min: int, *checks: Check) -> Case:
    """scripts/setup `what` and its tests, in a fresh clone."""
    return Case(
        script="fresh_clone.py",
        label=label,
        flags=("--what", what),
        quick_flags=("tests/unit",),
        is_alone=True,
        limit_s=limit_min * 60,
        checks=checks,
    )


DEFAULT_TIER = tier(
    "scripts/test", "test", 60,
    above("test_min", 10, " min", "scripts/test"),
    above("both_min", 20, " min", "with its set-up"),
    above("num_failed", 0, "", "failed tests"),
)  # fmt: skip
FULL_TIER = tier(
    "scripts/test --full", "full", 150,
    above("test_min", 60, " min", "scripts/test --full"),
    above("setup_min", 10, " min", "its set-up"),
    above("num_failed", 0, "", "failed tests"),
)  # fmt: skip


def fit_loop(framework: str) -> Case:
    """A case of `frameworks`; both sides have as many workers as there are cores."""
    return Case(
        script="frameworks.py",
        label=framework,
        flags=("--framework", framework, *seconds(1.5, 5)),
        quick_flags=seconds(0.5, 2),
        checks=(at_least(1.5, "images_per_s", what=f"torch, {framework}"),),
    )


FRAMEWORKS = ("lightning", "accelerate", "transformers", "timm", "fastai", "ultralytics")

# The loaders' names are known to many_loaders.py alone: each becomes a check like this one.
EACH_LOADER = at_least(0.97, "", how=How.SPEED)
MANY = Case(
    script="many_loaders.py", flags=("--on-demand",), checks=(EACH_LOADER,), takes_turns=True
)


SHORT_SCRIPTS = ("digits", "chars", "workers")


FEW_FAR = ("--num-photos", "8000", "--num-shards", "2", "--batches-each", "2", "--epochs", "2")


def far(case: str, *checks: Check) -> Case:
    """Files of a server that is 10 ms and 1 Gbit/s away."""
    return Case(
        script="storage.py", label=case, flags=("--case", case), quick_flags=FEW_FAR,
        is_alone=True, checks=checks,
    )  # fmt: skip


def far_images(how: str, work: str) -> Case:
    """The first epoch against the link and against fsspec, later ones against the local disk."""
    return far(
        f"images-{how}",
        alone(0.8, "of_link", "x", f"the link's bytes/s, {work}, first epoch"),
        alone(8, "of_plain", "x", f"fsspec in two workers, {work}, first epoch"),
        alone(8, "of_tuned_plain", "x", f"fsspec in 2 to 16 workers, {work}, first epoch"),
        alone(0.95, "of_local", "x", f"the local disk, {work}, later epochs"),
    )


def hosted(label: str, what: str, *flags: str) -> Case:
    """Files of the trainer's machine, which two others lack."""
    return Case(
        script="host_files.py", label=label, flags=("--what", what, *flags), is_alone=True,
        checks=(
            alone(0.9, "of_link", "x", f"one connection's bytes/s, {label}"),
            above("trainer_cpu_s_per_gb", 0.3, " s", f"the trainer's CPU for 1 GB, {label}"),
        ),
    )  # fmt: skip


def whole(work: str, check: Check) -> Case:
    """A whole command, as long as the shell waits for it."""
    return Case(script="whole_command.py", label=work, flags=("--work", work), checks=(check,))


def no_slower(work: str) -> Check:
    return at_least(0.97, "command_s", how=How.SPEED, what=f"torch, whole {work}")


def hardly_later(work: str) -> Check:
    return at_most(0.15, "command_s", how=How.MORE, unit=" s", what=f"more than torch, {work}")


FIGURES = {
    figure.name: figure
    for figure in (
        Figure(
            name="handover",
            work="38.5 MB of float32 a batch: 64 resident samples stacked, or a clone with batch_size=None",
            cases=(
                handed_over("handover.py", "stack", 12, 0.9),
                handed_over("handover.py", "clone", 12, 0.9),
            ),
        ),
        Figure(
            name="handover-small",
            work="10 KB: 4 samples stacked, or a single one with batch_size=None",
            cases=(
                handed_over("handover_small.py", "stack", 4),
                handed_over("handover_small.py", "single", 4),
            ),
        ),
        Figure(
            name="tokens",
            work="2,048 tokens of int64, batch 32: views of one tensor, or astype from uint16",
            cases=(
                handed_over("tokens.py", "view", 6),
                handed_over("tokens.py", "astype", 6),
            ),
        ),
        Figure(
            name="images",
            work="JPEG 500x375: decode, RandomResizedCrop, flip, ToTensor, Normalize, batch 64",
            cases=(IMAGES,),
        ),
        Figure(
            name="frameworks",
            work="the same photographs through each framework's own fit loop",
            cases=tuple(fit_loop(name) for name in FRAMEWORKS),
            num_quick_pairs=1,
        ),
        Figure(
            name="clips",
            work="32 uint8 frames in memory: flip, /255, resize, crop, normalise, batch 8",
            cases=(rate("clips.py", "clips_per_s", 2),),
        ),
        Figure(
            name="stateful",
            work="torchdata's StatefulDataLoader: 2.1 MB batches, a state at every one",
            cases=(rate("stateful.py", "batches_per_s", 1),),
        ),
        Figure(
            name="iterable",
            work="text shards: split, look up, pack to 1,024 tokens, batch 32, W = 2",
            cases=(ITERABLE,),
        ),
        Figure(
            name="workers0-val",
            work="photographs without randomness, num_workers=0, the step busy on one core",
            cases=(WORKERS0_VAL,),
        ),
        Figure(
            name="workers0-tensors",
            work="CIFAR-like tensors in the script, random transforms, num_workers=0, the step busy on one core",
            cases=(WORKERS0_TENSORS,),
        ),
        Figure(
            name="verify",
            work="stoker verify on the demo's script, 50 batches",
            cases=(VERIFY,),
        ),
        Figure(
            name="lossless",
            work="batches of `images` on a network, coded without loss: bytes, float32 a core",
            cases=(LOSSLESS,),
        ),
        Figure(
            name="ingest",
            work="10 MB batches from other processes over TCP loopback",
            cases=(
                INGEST,
                beside("ray", 5, "Ray's streaming generator between two nodes"),
                beside("tf.data", 4, "tf.data service"),
            ),
        ),
        Figure(
            name="trainer-cpu-remote",
            work="CPU seconds of the training process per GB that other processes send it",
            cases=(TRAINER_CPU_REMOTE,),
        ),
        Figure(
            name="scale",
            work="1, 4, 16, 64 workers elsewhere that sleep 0.1 s and send 1 MB",
            cases=(SCALE,),
        ),
        Figure(
            name="thin-link",
            work="batches of `images` over a link that is held to 1 Gbit/s",
            cases=(THIN_LINK,),
        ),
        Figure(
            name="offload",
            work="`images`, the trainer's one core busy with as long a step; one worker elsewhere",
            cases=(OFFLOAD,),
        ),
        Figure(
            name="storage",
            work="--mount of a web server 10 ms and 1 Gbit/s away: 20,000 JPEGs of 40 KB, shards of 200 MB, 1,000,000 names",
            cases=(
                far_images("bytes", "files"),
                far_images("decode", "decoded"),
                far("quarter", above("origin_frac", 0.78, "x", "the bytes, room for a quarter")),
                far(
                    "shards", alone(0.9, "of_link", "x", "the link's bytes/s, shards, first epoch")
                ),
                far(
                    "names",
                    above("second_run_s", 2, " s", "to list 1,000,000 names in a second run"),
                ),
                far(
                    "one",
                    above("num_photo_requests", 1, "", "GETs of a file that 8 processes read"),
                ),
            ),
            num_pairs=3,
            num_quick_pairs=1,
        ),
        Figure(
            name="host-files",
            work="a dataset on the trainer's disk, two machines that lack it, 1 Gbit/s: JPEGs of 40 KB, mapped rows of 4 MiB",
            cases=(
                hosted("files", "files"),
                hosted("rows", "rows"),
                hosted("rows, no TLS", "rows", "--no-tls"),
            ),
            num_pairs=3,
            num_quick_pairs=1,
        ),
        Figure(
            name="kill",
            work="four workers elsewhere, every 2 s one of them killed (kill -9)",
            cases=(KILL,),
        ),
        Figure(
            name="join",
            work="stoker run --cluster ADDRESS, Ray being up: start to the first batch",
            cases=(JOIN,),
        ),
        Figure(
            name="machine-memory",
            work="a worker machine of 16 CPUs, one run with a dataset of 64 MB: all processes there",
            cases=(MACHINE_MEMORY,),
        ),
        Figure(
            name="relay",
            work="`images` from a host over TLS: CPU time of its workers by its own",
            cases=(RELAY,),
        ),
        Figure(
            name="all-reduce",
            work="100 MB of gradients over four ranks behind links that tc holds, 4 bit",
            cases=(all_reduce("100mbit", 6, 3), all_reduce("1gbit", 4.5, 2.2)),
        ),
        Figure(
            name="ddp-step",
            work="whole steps of a 25M-parameter transformer on four ranks, --gradients 4bit",
            cases=(
                ddp_step("1gbit", "sleep", 2),
                ddp_step("1gbit", "real", 2),
                ddp_step("", "real", 0.97),
            ),
        ),
        Figure(
            name="ddp-step-100mbit",
            work="the same steps on links of 100 Mbit/s",
            cases=(ddp_step("100mbit", "sleep", 4, 1), ddp_step("100mbit", "real", 4, 1)),
        ),
        Figure(
            name="gradient-kernels",
            work="fp32 gradients on one core, per second of CPU time",
            cases=(GRADIENT_KERNELS,),
        ),
        Figure(
            name="gradient-kernels-gpu",
            work="fp32 gradients on a GPU, beside its own copy of the same",
            cases=(GRADIENT_KERNELS_GPU,),
            num_pairs=3,
            needs_gpu=True,
        ),
        Figure(
            name="gpu-offload",
            work="ResNet-50 on a GPU, `images`, two cores of the trainer; the machine's other cores on Ray",
            cases=(GPU_OFFLOAD,),
            num_pairs=1,
            num_quick_pairs=1,
            needs_gpu=True,
        ),
        Figure(
            name="pinned",
            work="`handover` in pinned memory, each batch copied to a GPU",
            cases=(replace(rate("pinned.py", "batches_per_s", 3), num_tuning_rounds=1),),
            needs_gpu=True,
        ),
        Figure(
            name="gradient-accuracy",
            work="final validation loss after the same steps, five seeds",
            cases=(
                accuracy("digits", "bf16", "8bit", "4bit", "4bit+ef"),
                accuracy("text", "8bit", "4bit"),
                FEEDBACK,
            ),
            num_pairs=1,
            num_quick_pairs=1,
        ),
        Figure(
            name="gradient-budget",
            work="a 3.2M-parameter transformer trained for 40 s on four ranks, links of 100 Mbit/s",
            cases=(GRADIENT_BUDGET,),
        ),
        Figure(
            name="many-loaders",
            work="30 small and odd loaders, each; three whole commands",
            cases=(MANY, *(whole(work, no_slower(work)) for work in SHORT_SCRIPTS)),
            num_quick_pairs=1,
        ),
        Figure(
            name="remembered-photos",
            work="epochs over photographs, of which all is remembered that can be (audits on)",
            cases=(
                remembered("images-val", 25, 20_480),
                remembered("images-train", 1.6, 3_072),
                remembered("images-train-v2", 1.4, 3_072),
                remembered("photos-train", 2.2, 768),
                remembered("resize-crop", 5, 8_192),
                remembered_half(),
            ),
        ),
        Figure(
            name="early",
            work="whole loops of short jobs on little data, whose workers begin anew in each epoch",
            cases=(
                early("finetune", 3, 2.0),
                early("finetune", 10, 2.8),
                early("new", 3, 1.7),
                early("table", 5, 2.5),
                early("mel", 5, 3.0),
                early("mel-clean", 5, 3.2),
                early("clips", 5, 3.0),
            ),
        ),
        Figure(
            name="workers",
            work="starting workers by this Python's default method, forkserver from 3.14 on; 3 million pairs, 512 photographs",
            cases=(
                workers(
                    "list", 4, at_least(3.5, "later_first_s", how=How.SPEED), AT_MOST_A_DATASET
                ),
                workers(
                    "list", 16, at_least(12, "later_first_s", how=How.SPEED), AT_MOST_A_DATASET
                ),
                growth(4, "forkserver", 0.1),
                growth(16, "forkserver", 0.1),
                growth(4, "fork", 0.6),
                growth(16, "fork", 0.6),
                workers("photos", 2, at_least(1.5, "loop_s", how=How.SPEED), flags=num_epochs(4)),
                workers("photos", 8, at_least(1.3, "loop_s", how=How.SPEED), flags=num_epochs(4)),
                workers("val", 0, at_least(1.6, "loop_s", how=How.SPEED), flags=num_epochs(5)),
                workers("first", 2, at_least(1.4, "first_s", how=How.SPEED)),
                early("finetune", 3, 1.5),
            ),
        ),
        Figure(
            name="remembered-sounds",
            work="the same: WAV files of 5 s, mel spectrograms, with and without SpecAugment",
            cases=(remembered("mel", 18, 8_192), remembered("mel-clean", 100, 16_384)),
        ),
        Figure(
            name="remembered-volumes",
            work="the same: NIfTI volumes, by plain code and by MONAI's transforms",
            cases=(
                remembered("volumes", 100, 144, num_warm=36),
                remembered("volumes-monai", 100, 48, num_warm=96),
            ),
        ),
        Figure(
            name="remembered-scans",
            work="the same: DICOM series, GeoTIFF tiles",
            cases=(
                remembered("scans", 20, 384, num_warm=14),
                remembered("tiles", 5, 1_024, num_warm=10),
            ),
        ),
        Figure(
            name="remembered-videos",
            work="the same: MP4 clips of 30 s",
            cases=(remembered("videos", 10, 24, num_warm=4),),
        ),
        Figure(
            name="remembered-cold",
            work="the first epoch of a process that finds what another has kept on disk",
            cases=(
                remembered_cold("images-val", 20_480),
                remembered_cold("mel-clean", 16_384),
                remembered_cold("scans", 256),
            ),
        ),
        Figure(
            name="remembered-nothing",
            work="the images bench where nothing can be kept, against no memory at all",
            cases=(
                replace(
                    IMAGES,
                    ceiling="",
                    num_tuning_rounds=0,
                    tune_key="",
                    run_flags=("--cache-memory", "1M"),
                    beside=Beside(name="off", run_flags=("--cache", "off")),
                    checks=(at_least(0.99, "images_per_s", other="off", what="--cache off"),),
                ),
            ),
            num_pairs=11,
        ),
        Figure(
            name="fast-images",
            work="images that are decoded, cropped and made tensors: the first epoch",
            cases=(
                fast_images("photos", 3.0),
                fast_images("val", 2.0),
                fast_images("v2", 1.7),
                fast_images("to-image-first", 1.2),
                fast_images("timm", 1.5),
                fast_images("vit", 1.5),
            ),
        ),
        Figure(
            name="fast-images-peers",
            work="photographs, the script as it is, beside scripts that were rewritten for other packages",
            cases=(beside_peer("dali", 1.2), beside_peer("spdl", 1.4), beside_peer("ffcv", 1.0)),
        ),
        Figure(
            name="fast-images-nothing",
            work="the same by OpenCV and Albumentations, where nothing is made faster",
            cases=(fast_images_nothing("cv2"), fast_images_nothing("albumentations")),
            num_pairs=11,
        ),
        Figure(
            name="audio-tables",
            work="mel spectrograms of which the filter banks and kernels are made for each sound: the first epoch",
            cases=(audio_tables("resample", 1.1), audio_tables("transforms", 1.3)),
        ),
        Figure(
            name="nothing-to-gain",
            work="short training scripts that gain nothing, from the command's start to its end",
            cases=tuple(whole(work, hardly_later(work)) for work in SHORT_SCRIPTS),
            num_quick_pairs=1,
        ),
        Figure(
            name="doctor",
            work="predictions of stoker doctor, and the speed that stoker run then has",
            cases=tuple(
                predicted(case) for case in ("images", "images-workers", "mel", "pure", "model")
            ),
            num_pairs=1,
            num_quick_pairs=1,
        ),
        Figure(
            name="recording",
            work="what a run tells of itself: steps of 20 ms, and the batches of `images` with log, keeper and page; with and without it in turns",
            cases=(recording("model"), recording("python"), recording("images")),
            num_pairs=1,  # of sixty pairs of windows each
            num_quick_pairs=1,
        ),
        Figure(
            name="live-page",
            work="a run of 24 hours with 256 workers: its page in Chromium, its report, the process that keeps its log",
            cases=(
                shown(
                    "page",
                    first_paint_ms=(1000, " ms", "until all is drawn"),
                    update_ms=(
                        50,
                        " ms",
                        "of the main thread for an update, the longest of twenty",
                    ),
                ),
                shown(
                    "report",
                    report_s=(3, " s", "for stoker report"),
                    report_mb=(5, " MB", "its file"),
                ),
                shown(
                    "keeper",
                    keeper_mb=(64, " MB", "resident, of what keeps the log and serves the page"),
                ),
            ),
            num_quick_pairs=1,
        ),
        Figure(
            name="epoch-gap",
            work="last batch of an epoch to the first of the next, 1.28M (path, label) pairs",
            cases=(gap(2), gap(8)),
            num_quick_pairs=1,
        ),
        Figure(
            name="start",
            work="process start to first batch, same dataset",
            cases=(START,),
            num_pairs=11,  # single pairs differ by 0.3 s on a busy machine, more than the bar
        ),
        Figure(
            name="trainer-cpu",
            work="CPU seconds of the training process per GB delivered",
            cases=(cpu_cost("handover"), cpu_cost("images")),
        ),
        Figure(
            name="memory",
            work="peak PSS of all processes, images; and [y for _, y in loader]",
            cases=(peak("nothing"), peak("labels")),
        ),
        Figure(
            name="bare-install",
            work="stoker's wheel, into an environment that holds torch and nothing else",
            cases=(BARE_INSTALL,),
            num_pairs=1,
            num_quick_pairs=1,
        ),
        Figure(
            name="demo",
            work="scripts/demo in a fresh clone with an empty HOME",
            cases=(DEMO,),
            num_pairs=1,
            num_quick_pairs=1,
        ),
        Figure(
            name="default-tier",
            work="scripts/test in a fresh clone with an empty HOME",
            cases=(DEFAULT_TIER,),
            num_pairs=1,
            num_quick_pairs=1,
        ),
        Figure(
            name="full-tier",
            work="scripts/test --full in a fresh clone with an empty HOME",
            cases=(FULL_TIER,),
            num_pairs=1,
            num_quick_pairs=1,
        ),
    )
}
