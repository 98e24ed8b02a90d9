"""`--gradients` in real scripts under torchrun: what is compressed is the same on all ranks and close
to DDP's own; what is not is DDP's own to the bit.
"""

import contextlib
import json
import re
import sys
from pathlib import Path

import pytest
import torch

from tests.process.ddp import NUM_RANKS, Ran, bits, flat
from tests.process.harness import started, under_stoker
from tests.process.nodes import free_port

# Averages that are ours; and those that stoker leaves alone.
OURS = [
    "plainly", "in_views", "unused", "static", "accumulated", "two_models", "bfloat16",
    "half", "subgroup", "till_the_verdict",
]  # fmt: skip
THEIRS = [
    "own_hook", "late_hook", "builtin_hook", "second_hook", "wrong_hook", "joined",
    "joined_by_effective", "double", "sparse",
]  # fmt: skip
MORE = ["foreign", "at_once", "not_finite", "gone"]
LONG = ["from_a_loader"]  # so long that a trial has ended, which may drop the codes
# The default tier's: the others differ from one of these in DDP's way of calling a hook.
DEFAULT = {
    "plainly", "unused", "accumulated", "bfloat16", "subgroup", "till_the_verdict", "own_hook",
    "second_hook", "wrong_hook", "joined", "sparse", *MORE,
}  # fmt: skip


def cases(*names):
    return [pytest.param(n, marks=() if n in DEFAULT else pytest.mark.full) for n in names]


@pytest.fixture(scope="module")
def played(request):
    """Cases that a test of this session asks for, and those that tests without cases do."""
    tests = [item for item in request.session.items if item.path == request.path]
    asked = {test.callspec.params.get("case") for test in tests if hasattr(test, "callspec")}
    return lambda *names: [name for name in names if name in DEFAULT | asked]


@pytest.fixture(scope="module")
def plain(tmp_path_factory, played):
    names = played(*OURS, *THEIRS, *MORE, *LONG)
    return Ran(tmp_path_factory.mktemp("plain") / "run", None, names)


@pytest.fixture(scope="module", params=["own thread", "on stream"])
def close(request, tmp_path_factory, played):
    """Our exchange, of every parameter, in floats that are near enough to compare all steps.

    On stream: as on an accelerator, from the hook's own thread.
    """
    flags = ["--gradients=bf16", "--gradient-codes=*=bf16,head.wieght=8bit"]
    more = {"ON_STREAM": "1"} if request.param == "on stream" else {}
    names = played(*OURS, *MORE)
    ran = Ran(tmp_path_factory.mktemp("close") / "run", flags, names, **more)
    told = [json.loads(file.read_text())["gradients"] for file in ran.folder.glob("report.*.json")]
    assert len(told) == NUM_RANKS
    assert all(each["wire_nbytes"] < 0.8 * each["raw_nbytes"] for each in told)
    return ran


@pytest.fixture(scope="module")
def coded(tmp_path_factory, played):
    names = played(*OURS, *THEIRS, *MORE)
    return Ran(tmp_path_factory.mktemp("coded") / "run", ["--gradients=4bit"], names)


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    return Ran(tmp_path_factory.mktemp("long") / "run", ["--gradients=4bit"], LONG)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory, played):
    """Under stoker, without the flag."""
    names = played(*OURS, *THEIRS, *MORE, *LONG)
    return Ran(tmp_path_factory.mktemp("untouched") / "run", [], names)


def same(a, b):
    """To the bit: also where they are not finite."""
    a, b = flat(a), flat(b)
    pairs = zip(a, b, strict=True)
    return len(a) == len(b) and all(torch.equal(bits(x), bits(y)) for x, y in pairs)


def in_group(case):
    return 2 if case == "subgroup" else NUM_RANKS


@pytest.mark.full
@pytest.mark.parametrize("case", cases(*OURS))
def test_all_ranks_have_the_same_bits(close, coded, case):
    for ran in (close, coded):
        first, *others = ran.saved(case)[: in_group(case)]
        assert flat(first)
        assert all(same(first, other) for other in others)


@pytest.mark.full
@pytest.mark.parametrize("case", cases(*OURS))
def test_in_16_bits_every_step_is_near_ddps(plain, close, case):
    """Before and after buckets are built anew, in every way of working."""
    # The rounding of 16 bits grows with the steps.
    near = 2**-2 if case in ("bfloat16", "half") else 2**-4
    for theirs, ours in zip(plain.saved(case), close.saved(case), strict=True):
        for a, b in zip(flat(theirs), flat(ours), strict=True):
            assert (a - b).abs().max() <= near * a.abs().max()


@pytest.mark.parametrize("case", cases(*OURS))
def test_the_first_steps_gradients_are_those_of_ddp_within_two_roundings(plain, coded, case):
    theirs, ours = plain.saved(case)[0][0], coded.saved(case)[0][0]
    pairs = [(a, b) for a, b in zip(theirs, ours, strict=True) if a is not None]
    assert any(not torch.equal(a, b) for a, b in pairs)
    for a, b in pairs:
        # A rank's largest may be a few times the average's; each rounding is off by up to a seventh.
        assert (a - b).abs().max() <= 2 * 3 / 7 * max(a.abs().max(), 1e-6)


@pytest.mark.parametrize("case", cases(*THEIRS))
def test_what_is_left_alone_is_ddps_own_to_the_bit(plain, coded, case):
    for theirs, ours in zip(plain.saved(case), coded.saved(case), strict=True):
        assert same(theirs, ours)


@pytest.mark.parametrize("case", cases(*OURS, *THEIRS, *MORE, *LONG))
def test_without_the_flag_every_bit_is_ddps_own(plain, untouched, case):
    for theirs, ours in zip(plain.saved(case), untouched.saved(case), strict=True):
        assert same(theirs, ours)


@pytest.mark.full
def test_without_the_flag_alone_one_line_tells_what_it_would_gain(untouched, long):
    line = r"^stoker: gradients: a step of [\d.]+ m?s waits [\d.]+ m?s for them[;:] .*$"
    assert len(re.findall(line, untouched.finished.stderr, re.MULTILINE)) == 1
    assert not re.search(line, long.finished.stderr, re.MULTILINE)
    assert long.finished.stderr.count("stoker: gradients: 4bit ") == 1  # the trial's verdict
    first, *others = long.saved("from_a_loader")
    assert all(same(first, other) for other in others)


def test_the_scripts_own_collectives_are_as_ever(plain, coded):
    """The parameters do not change in this case, so that all that it reduces is the same."""
    for theirs, ours in zip(plain.saved("foreign"), coded.saved("foreign"), strict=True):
        assert same(theirs, ours)


def test_what_the_script_reads_of_hooks_and_threads_is_as_ever(plain, coded):
    """Also when a model is gone: no thread of ours is left."""
    assert plain.told() == coded.told()
    for errors in plain.told():
        assert [each for each in errors if "hook" in each] == errors[:2]


@pytest.mark.full
def test_accumulated_steps_are_the_big_batchs(plain, close):
    for ran, rounding in ((plain, 2**-16), (close, 2**-6)):
        for accumulated, at_once in zip(
            ran.saved("accumulated"), ran.saved("at_once"), strict=True
        ):
            for a, b in zip(flat(accumulated), flat(at_once), strict=True):
                assert (a - b).abs().max() <= rounding * a.abs().max()


def test_what_is_not_finite_on_one_rank_is_not_on_any_and_is_over_with_its_step(coded):
    for steps in coded.saved("not_finite"):
        *bad, good = steps
        assert all(not gradient.isfinite().all() for step in bad for gradient in step)
        assert all(gradient.isfinite().all() for gradient in good)


def test_the_report_tells_the_scheme_and_what_was_sent(coded):
    reports = [json.loads(file.read_text()) for file in coded.folder.glob("report.*.json")]
    assert len(reports) == NUM_RANKS
    for report in reports:
        told = report["gradients"]
        assert told["scheme"] == "4bit"
        assert 0 < told["wire_nbytes"] < 0.8 * told["raw_nbytes"]  # trials send some plainly


def test_who_is_left_alone_is_told_once_and_why(coded):
    lines = [line for line in coded.finished.stderr.splitlines() if line.startswith("stoker: grad")]
    own = "gradients: the script registered a communication hook of its own, which is used"
    assert sum(own in line for line in lines) == 1


@pytest.mark.full
def test_a_pattern_that_is_no_parameters_is_told(close):
    line = "stoker: --gradient-codes: no parameter of a Net matches 'head.wieght'"
    assert close.finished.stderr.splitlines().count(line) == 1


def test_a_trial_ends_with_one_line(coded):
    lines = coded.finished.stderr.splitlines()
    verdicts = [line for line in lines if line.startswith("stoker: gradients: 4bit ")]
    assert len(verdicts) == 1
    assert re.fullmatch(
        r"stoker: gradients: 4bit (stays|is dropped, for it gains too little)"
        r": a step took [\d.]+ ms with it, [\d.]+ ms without",
        verdicts[0],
    )


@contextlib.contextmanager
def by_hand(
    folder: Path,
    flags: list[list[str] | None],
    num_steps: int,
    die: tuple[int, int] = (-1, -1),
):
    """A rank for each: its flags, or None without stoker. die: who is killed, before which backward."""
    port = str(free_port())
    with contextlib.ExitStack() as stack:
        ranks = []
        for rank, own in enumerate(flags):
            environ = {"RANK": str(rank), "WORLD_SIZE": str(len(flags))}
            environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            prefix = [] if own is None else under_stoker(*own, quiet=False)
            dies_at = die[1] if rank == die[0] else -1
            command = [*prefix, sys.executable, "ddp_forever.py", str(num_steps), str(dies_at)]
            ranks.append(stack.enter_context(started(command, folder / str(rank), environ=environ)))
        yield ranks


@pytest.mark.few(1)
@pytest.mark.parametrize("step", [0, 5], ids=["before the first backward", "later"])
@pytest.mark.parametrize("flags", [None, ["--gradients=4bit"]], ids=["plain", "ours"])
def test_where_a_rank_is_killed_the_others_fail_as_under_plain_ddp(tmp_path, flags, step):
    with by_hand(tmp_path, [flags] * 3, 1_000_000, die=(1, step)) as ranks:
        for each in (ranks[0], ranks[2]):
            assert each.wait_for("failed") == "RuntimeError"
            ended = each.finish()
            assert ended.returncode == 1 and ended.leftovers == {}
            assert "RuntimeError: " in ended.stderr


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "others",
    [None, ["--gradients=4bit", "--gradient-codes=*=bf16"]],
    ids=["plain python", "other codes"],
)
def test_ranks_that_do_not_all_say_the_same_are_left_to_ddp(tmp_path, others):
    with by_hand(tmp_path / "plain", [None] * 3, 3) as ranks:
        expected = [each.wait_for("ends") for each in ranks]
    with by_hand(tmp_path / "ours", [["--gradients=4bit"]] * 2 + [others], 3) as ranks:
        assert [each.wait_for("ends") for each in ranks] == expected
        said = ranks[0].finish().stderr
        assert "left to DDP: ranks 2 of its group run without it" in said
