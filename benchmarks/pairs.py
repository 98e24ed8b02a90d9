"""Measure figures: plain torch and stoker in turn on the same script, the ratio last.

Promise: both sides run the same file with the same flags, each with its own best num_workers;
exit code 0 when it was measured, a MISS included, 1 when it could not be, 2 for wrong flags.
"""

import argparse
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import results
from figures import FIGURES, Case, Check, Figure, Pair
from sides import CannotMeasureError, run_side

MAX_EXTRA_ROUNDS = 6


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure. `ours` is "plain" where --null compares torch with itself."""

    asked_pairs: int | None
    quick: bool
    ours: str = "stoker"

    def num_pairs(self, figure: Figure) -> int:
        return self.asked_pairs or (figure.num_quick_pairs if self.quick else figure.num_pairs)


def say(text: str) -> None:
    print(text, flush=True)


def num_workers_candidates(num_cores: int) -> list[int]:
    """What a user would try: 1, 2, 3, 4 on two cores. Pure."""
    return sorted({1, num_cores, num_cores * 3 // 2, num_cores * 2})


def run_case(
    side: str,
    case: Case,
    effort: Effort,
    extra: tuple[str, ...] = (),
    run_flags: tuple[str, ...] = (),
) -> dict[str, Any]:
    flags = (*case.flags, *(case.quick_flags if effort.quick else ()), *extra)
    if case.stamps_start:
        flags = (*flags, "--started", repr(time.time()))
    return run_side(side, case.script, flags, case.watches_memory, case.limit_s, run_flags)


def tune(case: Case, effort: Effort) -> dict[str, dict[int, float]]:
    """Throughput by num_workers of both sides, the best of the rounds."""
    num_cores = results.circumstances()["machine"]["num_cores"]
    found: dict[str, dict[int, float]] = {"plain": {}, "stoker": {}}

    def try_out(side: str, num_workers: int) -> None:
        side_flags = case.plain_tune_flags if side == "plain" else ()
        flags = (*case.tune_flags, *side_flags, "--num-workers", str(num_workers))
        ours = effort.ours if side == "stoker" else side
        line = run_case(ours, case, effort, flags, case.run_flags)
        seen = found[side]
        seen[num_workers] = max(line[case.tune_key], seen.get(num_workers, 0.0))

    for num_workers in num_workers_candidates(num_cores) * case.num_tuning_rounds:
        try_out("plain", num_workers)
        if not case.is_slow_to_tune:
            try_out("stoker", num_workers)
    if case.is_slow_to_tune:
        best = max(found["plain"], key=found["plain"].__getitem__)
        for num_workers in {best, num_cores} if best != num_cores else ():
            try_out("stoker", num_workers)
    return {side: seen for side, seen in found.items() if seen}


def workers_flags(case: Case, tuning: dict[str, dict[int, float]]) -> dict[str, tuple[str, ...]]:
    """Each side's flags for the num_workers that suited it best. Pure."""
    best = {side: max(seen, key=seen.__getitem__) for side, seen in tuning.items()}
    for side, seen in tuning.items():
        rates = ", ".join(f"W={w} {rate:.1f}" for w, rate in sorted(seen.items()))
        say(f"  {side}: {case.tune_key} by num_workers: {rates}; takes W={best[side]}")
    chosen = {side: ("--num-workers", str(num_workers)) for side, num_workers in best.items()}
    return {"stoker": chosen["plain"], **chosen}


def one_pair(number: int, case: Case, effort: Effort, chosen: dict[str, tuple[str, ...]]) -> Pair:
    """Run all sides in turn; each pair begins with another one, for who runs last is a little faster."""
    if case.is_alone:
        return {"stoker": run_case("plain", case, effort)}
    num_workers = chosen.get("stoker", ())
    plain_flags = (*case.plain_flags, *chosen.get("plain", ()))
    stoker_flags = (*case.stoker_flags, *num_workers)
    sides = {
        "plain": partial(run_case, "plain", case, effort, plain_flags),
        "stoker": partial(run_case, effort.ours, case, effort, stoker_flags, case.run_flags),
    }
    if case.beside:
        flags, run_flags = (*case.beside.flags, *num_workers), case.beside.run_flags
        sides[case.beside.name] = partial(run_case, effort.ours, case, effort, flags, run_flags)
    if case.ceiling:
        flags = (*case.flags, *(case.quick_flags if effort.quick else ()))
        sides["bare"] = partial(run_side, "plain", case.ceiling, flags)
    if case.peer:
        flags = (*case.flags, *(case.quick_flags if effort.quick else ()), "--peer", case.peer)
        sides[case.peer] = partial(run_side, "plain", "peer_images.py", flags)
    names = list(sides)
    first = (number - 1) % len(names)
    found = {name: sides[name]() for name in names[first:] + names[:first]}
    return {name: found[name] for name in names}


def say_pair(number: int, checks: tuple[Check, ...], pair: Pair) -> None:
    for check in checks:
        sides = ", ".join(f"{side} {line[check.key]:.5g}" for side, line in pair.items())
        value = f"{check.of(pair):.3f}{check.unit}"
        say(f"  pair {number}: {check.key}: {sides}: {value} {check.what}")


def measure_case(case: Case, effort: Effort, num_pairs: int) -> dict[str, Any]:
    """The case's raw numbers and the verdict of each of its checks."""
    tuning, chosen = {}, {}
    if case.tune_key and not effort.quick:
        tuning = tune(case, effort)
        chosen = workers_flags(case, tuning)
    pairs = []
    if case.leaves_something:
        flags = (*case.stoker_flags, *chosen.get("stoker", ()))
        run_case(effort.ours, case, effort, flags, case.run_flags)
    for number in range(1, num_pairs + 1):
        pairs.append(one_pair(number, case, effort, chosen))
        say_pair(number, case.checks, pairs[-1])
    checks = [results.verdict(check, pairs) for check in case.checks]
    return {"label": case.label, "tuning": tuning, "pairs": pairs, "checks": checks}


def measure_in_turns(case: Case, effort: Effort, num_pairs: int) -> dict[str, Any]:
    """One check per loader; those below the bar are looked at more often, all rounds counting."""
    from turns import Turns  # needs torch; the other figures' harness does not

    (each,) = case.checks
    with Turns(case.script, case.flags, effort.ours) as turns:
        turns.round()  # warm, not counted
        pairs = []
        for number in range(1, num_pairs + 1):
            pairs.append(turns.round())
            worst = results.verdicts_by_key(each, pairs[-1:])[0]
            say(f"  round {number}: worst {worst['median']:.3f}x {worst['what']}")
        for _ in range(0 if effort.quick else MAX_EXTRA_ROUNDS):
            below = [one for one in results.verdicts_by_key(each, pairs) if not one["passed"]]
            if not below:
                break
            pairs.append(turns.round([one["what"] for one in below]))
    checks = results.verdicts_by_key(each, pairs)
    for one in checks[:8]:
        say(f"  {results.one_text(one)}, {len(one['values'])} rounds")
    return {"label": case.label, "tuning": {}, "pairs": pairs, "checks": checks}


def measure(figure: Figure, effort: Effort) -> dict[str, Any]:
    say(f"{figure.name}: {figure.work}")
    facts = results.circumstances()  # before, so that the load is not our own
    num_pairs = effort.num_pairs(figure)
    cases = [
        (measure_in_turns if case.takes_turns else measure_case)(case, effort, num_pairs)
        for case in figure.cases
    ]
    checks = [check for case in cases for check in case["checks"]]
    return {
        "figure": figure.name,
        **facts,
        "quick": effort.quick,
        "num_pairs": num_pairs,
        "passed": all(check["passed"] for check in checks),
        "checks": checks,
        "cases": cases,
    }


def parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("name", nargs="?", choices=(*FIGURES, "all"), metavar="NAME")
    parser.add_argument("--pairs", type=int, metavar="N", help="default 5; more for `start`")
    quick = "one or two short pairs, num_workers = cores; not for the tables"
    parser.add_argument("--quick", action="store_true", help=quick)
    null = "plain torch on both sides: shows the noise; writes no result"
    parser.add_argument("--null", action="store_true", help=null)
    parser.add_argument("--list", action="store_true", help="the names and the bars")
    flags = parser.parse_args(argv)
    if not flags.name and not flags.list:
        parser.error(f"which figure? one of: {', '.join(FIGURES)}, all")
    if flags.pairs is not None and flags.pairs < 1:
        parser.error(f"--pairs {flags.pairs}: an integer >= 1")
    return flags


def list_figures() -> None:
    for figure in FIGURES.values():
        checks = [check for case in figure.cases for check in case.checks]
        bars = "; ".join(f"{check.bar_text()} {check.what}" for check in checks)
        say(f"{figure.name:16}{figure.work}\n{'':16}bar: {bars}")


def measure_and_say(name: str, effort: Effort) -> bool:
    """Whether it could be measured; its last line is the figure, or why there is none."""
    if FIGURES[name].needs_gpu and not results.gpus():
        say(f"{name}: not measured: no CUDA device here")
        return False
    try:
        result = measure(FIGURES[name], effort)
    except CannotMeasureError as failure:
        say(f"{name}: not measured: {failure}")
        return False
    if effort.ours == "stoker":
        say(f"  kept in {results.write(result).relative_to(results.HERE.parent)}")
    else:
        say("  --null: plain torch on both sides")
    say(results.summary(result))
    return True


def main(argv: list[str]) -> int:
    flags = parse(argv)
    if flags.list:
        list_figures()
        return 0
    effort = Effort(flags.pairs, flags.quick, "plain" if flags.null else "stoker")
    here = [name for name in FIGURES if results.gpus() or not FIGURES[name].needs_gpu]
    names = here if flags.name == "all" else [flags.name]
    measured = [measure_and_say(name, effort) for name in names]
    return 0 if all(measured) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
