"""Shows what an examination has found on one screen. Pure: facts in, text out."""

import textwrap
from dataclasses import replace

from stoker.doctor.advice import bound_of, hurting
from stoker.doctor.facts import Costs, Facts
from stoker.doctor.predict import Prediction, predictions, readable
from stoker.reports.metrics import FastPlace
from stoker.reports.summary import LIMIT_FRAC
from stoker.stalls.split import WORDS, Split
from stoker.tables import aligned, counted

MAX_FUNCTIONS = 7
GAIN = 1.05  # less is not worth a line
NOT_WAITED = 1.25  # times what an end of all waiting would bring, from which on it is said why
MAX_NAME = 52
WIDTH = 80


def screen(
    facts: Facts,
    command: str,
    price_trainer: float | None = None,
    price_worker: float | None = None,
) -> str:
    """Return the text. prices: of this machine, and of a CPU of other machines, for an hour."""
    bound, share = bound_of(facts.plain.split)
    plain, free = facts.plain, facts.free
    steps = f"{counted(plain.num, 'step')} of {facts.setup.batch_size}"
    a_rank = " a rank" if facts.setup.world_size > 1 else ""
    step = f"a step of {_ms(plain.wall_s / max(1, plain.num))}"
    why = (
        f" (from {LIMIT_FRAC:.0%} on it counts as the limit)"
        if bound == "data" and share < 0.5
        else ""
    )
    lines = [
        f"{facts.setup.place} as plain PyTorch: {_rate(plain.rate)} samples/s{a_rank} in {steps}",
        f"the limit is {bound}: {share:.0%} of {step}{why}",
        f"  {_words(plain.split)}",
    ]
    if free is not None and plain.rate:
        gain = free.rate / plain.rate
        lines.append(f"if data cost nothing: {_rate(free.rate)} samples/s{a_rank}, {gain:.2f}x")
        lines += _why_more(facts, gain)
    parts = [
        "".join(f"{line}\n" for line in lines),
        _costs(facts.costs),
        _hurting(facts),
        _found(facts),
        _to_try(facts, command, price_trainer, price_worker),
        f"not all was seen: {facts.why}\n" if facts.why else "",
    ]
    return "\n".join(part for part in parts if part)


def _why_more(facts: Facts, gain: float) -> list[str]:
    """Explain a gain that is larger than the time that was waited, where the workers take the model's cores."""
    setup, split = facts.setup, facts.plain.split
    share = (split.data_s + split.own_s) / (sum(split) or 1.0)
    is_crowded = setup.num_workers and setup.num_workers + setup.num_threads > setup.cores
    if not is_crowded or gain * (1.0 - share) < NOT_WAITED:
        return []
    return [f"  more than the {share:.0%} of waiting: the workers took the model's cores, too"]


def _words(split: Split) -> str:
    total_s = sum(split) or 1.0
    parts = sorted(split._asdict().items(), key=lambda part: -part[1])
    return ", ".join(
        f"{WORDS[name]} {s / total_s:.0%}" for name, s in parts if s >= 0.005 * total_s
    )


def _costs(costs: Costs | None) -> str:
    if costs is None:
        return ""
    if costs.why:
        return f"what a sample costs is not known: {costs.why}\n"
    size = readable(costs.nbytes)
    head = f"a sample costs one core {_ms(costs.sample_s)} and is {size} in its batch:\n"
    shown, rest = costs.functions[:MAX_FUNCTIONS], costs.functions[MAX_FUNCTIONS:]
    rest_s = sum(seconds for _, seconds in rest)
    if rest_s > 0.01 * costs.sample_s:
        shown = [*shown, (f"{len(rest)} others", rest_s)]
    rows = [[_short(name), _ms(s), f"{s / costs.sample_s:.0%}"] for name, s in shown]
    return head + (aligned(rows, right=(1, 2), indent=2) if rows else "")


def _hurting(facts: Facts) -> str:
    found = hurting(facts)
    return f"settings that hurt:\n{_listed(found)}" if found else ""


def _listed(lines: list[str]) -> str:
    """Return them below each other, each begun by two spaces, and gone on with four."""
    filled = (
        textwrap.fill(line, WIDTH, initial_indent="  ", subsequent_indent="    ") for line in lines
    )
    return "".join(f"{each}\n" for each in filled)


def _found(facts: Facts) -> str:
    """Return what stoker does of itself, and what it leaves alone, and why."""
    works = next((trial for trial in facts.trials if not trial.why), None)
    instead = f"; {works.flags} has workers for it" if works and works.flags else ""
    lines = [
        f"left to torch by {trial.name}: {trial.why}{instead}"
        if trial.is_left
        else f"could not be tried: {trial.name}: {trial.why}"
        for trial in facts.trials
        if trial.why
    ]
    for way in _merged(next((trial.fast for trial in reversed(facts.trials) if trial.fast), [])):
        done = f"{way.num_made - way.num_refused:,} of {way.num_made:,} made faster, {way.num_checked:,} compared"
        lines.append(f"{way.place}: {f'left alone, {way.why}' if way.why else done}")
    if facts.kept is not None:
        kept, place = facts.kept, facts.kept.place.rpartition("/")[2]
        if kept.serves:
            what = f"remembered, {kept.depth}"
        elif kept.phase == "off":
            what = f"not remembered: {kept.why}"
        else:
            what = f"remembered or not is not known: {kept.why or 'the trial ended first'}"
        lines.append(f"{place}: {what}")
    return f"what stoker does of itself:\n{_listed(lines)}" if lines else ""


def _merged(ways: list[FastPlace]) -> list[FastPlace]:
    """Add up ways of one kind: of "JPEG file 4:2:0, some columns, mirrored -> tensor" what is before the comma, and after
    the arrow. One that is left alone stands alone."""
    found: dict[tuple[str, str], FastPlace] = {}
    for way in ways:
        source, arrow, made = way.place.partition(" -> ")
        name = way.place if way.why else f"{source.partition(',')[0]}{arrow}{made}"
        one = found.get((name, way.why))
        found[name, way.why] = (
            replace(way, place=name)
            if one is None
            else replace(
                one,
                num_made=one.num_made + way.num_made,
                num_checked=one.num_checked + way.num_checked,
                num_refused=one.num_refused + way.num_refused,
            )
        )
    return list(found.values())


def _to_try(
    facts: Facts, command: str, price_trainer: float | None, price_worker: float | None
) -> str:
    plain = facts.plain
    if facts.free is None:
        return ""
    worth = [each for each in predictions(facts) if each.rate >= GAIN * plain.rate]
    if not worth:
        bound, _ = bound_of(plain.split)
        return f"nothing that stoker does makes this faster: {bound} is the limit\n"
    has_epoch = facts.setup.num_samples > 0
    rows = [["what to try", "samples/s", "", *(["epoch"] if has_epoch else []), "needs"]]
    for each in (Prediction("as it is", "", plain.rate, plain.rate), *worth):
        is_close = each.high <= 1.1 * each.low
        rate = _rate(each.rate) if is_close else f"{_rate(each.low)}..{_rate(each.high)}"
        seconds = facts.setup.num_samples / each.rate
        epoch = [f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:.1f} s"] if has_epoch else []
        price = _price(each, seconds / 3600, price_trainer, price_worker) if has_epoch else ""
        needs = ", ".join(word for word in (price, each.needs) if word)
        rows.append([each.name, rate, f"{each.rate / plain.rate:.1f}x", *epoch, needs])
    table = aligned(rows, right=(1, 2, 3) if has_epoch else (1, 2), indent=2)
    table += "".join(f"  {each.note}\n" for each in worth if each.note)
    return f"{table}begin with: stoker {_first(worth)} -- {command}\n"


def _first(worth: list[Prediction]) -> str:
    """Return what to begin with, the words of a command: what needs nothing else, and loses nothing."""
    here = [each for each in worth if not each.num_away]
    exact = [each for each in here if not each.is_lossy]
    if here and not exact:
        return "probe"  # measures what they would bring, and what is lost
    return f"run {(exact or worth)[0].flags}".rstrip()


def _price(
    each: Prediction, hours: float, price_trainer: float | None, price_worker: float | None
) -> str:
    """Return what an epoch costs, if the prices are known."""
    if price_trainer is None or (each.num_away and price_worker is None):
        return ""
    return f"{hours * (price_trainer + each.num_away * (price_worker or 0.0)):.2g} an epoch"


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _ms(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 3]}..."
