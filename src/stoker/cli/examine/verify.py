"""`stoker verify [flags] -- COMMAND ...`: run COMMAND plain and under stoker, compare the batches.

Promise: both sides start alike (PYTHONHASHSEED, `random`, NumPy, torch); a difference is charged to
stoker only if a second plain run equals the first; nothing is left behind, also after Ctrl-C.
"""

import os
from pathlib import Path
from typing import NamedTuple

from stoker import config, speak
from stoker.cli import run
from stoker.cli.checks import check_interpreter, start_storage
from stoker.cli.examine.values import count_from, parsed, seconds
from stoker.cli.examine.watched import say, watched
from stoker.cli.flags import listed, split
from stoker.cli.settings import find
from stoker.config import Setting
from stoker.errors import ConfigError, StorageUnavailable
from stoker.verify import table
from stoker.verify.compare import Difference, Verdict, compare
from stoker.verify.record import SEED, Side
from stoker.verify.runner import Run, plan_for, processes
from stoker.verify.sandbox import Sandbox

EQUAL, DIFFERENT, UNDECIDED, COMMAND_FAILED, NOTHING_COMPARED = 0, 1, 3, 4, 5
EXIT_CODES = """\
exit codes:
  0  equal
  1  different: batches, their order or number, a generator, or the command's exit code
  2  wrong flags or interpreter
  3  undecided: the plain script differs from itself
  4  the command fails, plain too
  5  nothing to compare: no loader was iterated, or none gave a batch before the limit
  70 a bug of stoker's; 126, 127 the command cannot be started, as from a shell
"""


_KNOWN = {setting.name: setting for setting in config.SETTINGS}
FLAGS = (
    Setting(
        count_from(1), "N",
        "a run ends when every loader seen so far has given so many batches, or one of them four "
        "times as many; default: 50",
        "batches",
    ),
    Setting(
        seconds, "S",
        "a run ends, and is compared as far as it came, after so many seconds; default: 300",
        "limit_s",
    ),
    Setting(
        _KNOWN["off"].parse, "",
        "run in a scratch folder of links to what is in the current one: new and replaced files "
        "stay out of it, and no run sees those of another",
        "sandbox",
    ),
    *(
        _KNOWN[name]
        for name in (
            "chains", "workers", "memory", "cache", "cache_memory", "cache_disk", "cache_keep",
            "cache_trust", "mount",
        )
    ),
)  # fmt: skip
# The other flags are settings of the runs.
DEFAULTS = {"batches": "50", "limit_s": "300", "sandbox": "0"}

# What the runs are called, in the table's words.
PLAIN, OURS, AGAIN = "plain", "under stoker", "in a second plain run"


def main(words: list[str]) -> int:
    """Run and compare both sides; return the exit code: see EXIT_CODES, and watched.py."""
    try:
        flags, command = split(words, FLAGS, "verify")
        if command is None:
            print(help_text(), end="")
            return EQUAL
        wanted = _wanted(flags)
        if Path(command[0]).name == "stoker":
            raise ConfigError(f"verify runs the script itself; leave {' '.join(command[:2])!r} out")
        command = run.completed(command)
        check_interpreter(command)
        storage = start_storage(wanted.settings, "--mount") if wanted.settings.mount else ""
    except ConfigError as error:
        speak.say(str(error))
        return run.WRONG_USE
    except StorageUnavailable as error:
        speak.say(str(error))
        return run.NO_CLUSTER
    return watched(lambda folder: _verified(_Sides(command, wanted, folder, storage)))


class _Wanted(NamedTuple):
    settings: config.Settings
    batches: int
    limit_s: float
    sandbox: bool


def _wanted(flags: dict[str, str]) -> _Wanted:
    """Parse the flags. Raises ConfigError on the first value that is not allowed."""
    own = {f.name: parsed(f, flags, DEFAULTS[f.name]) for f in FLAGS if f.name in DEFAULTS}
    theirs = {name: text for name, text in flags.items() if name not in DEFAULTS}
    asked = find(theirs).settings
    return _Wanted(asked._replace(report_json=None, hash_batches=True, quiet=True), **own)


# -- the runs ----------------------------------------------------------------------------------


class _Sides:
    """The runs of the command, as many as the verdict needs. folder: an empty one; storage: what
    config.STORAGE is to be, where there are mounts."""

    def __init__(self, command: list[str], wanted: _Wanted, folder: Path, storage: str) -> None:
        self._storage = storage
        self._command = command
        self._folder = folder
        self.wanted = wanted
        self._runs: dict[str, Run] = {}
        self._sandbox: Sandbox | None = None
        if wanted.sandbox:
            self._sandbox = Sandbox(Path.cwd(), folder / "scratch")

    def run(self, name: str, *, off: bool) -> Side:
        """Run the command once, to its end or until it has given enough. Raises CannotStart."""
        say(f"{name}: {' '.join(self._command)}")
        folder = self._folder / str(len(self._runs))
        folder.mkdir()
        cwd = Path.cwd()
        if self._sandbox is not None:
            self._sandbox.make()
            cwd = self._sandbox.path
        limit_s = self.wanted.limit_s
        plan = plan_for(folder, self.wanted.batches, limit_s)
        self._runs[name] = one = Run(folder, plan.to_env(), limit_s)
        exit_code = one.run(self._command, self._environ(off, cwd), cwd)
        return Side(exit_code, processes(folder))

    def show_stderr(self, name: str) -> None:
        """Print the end of what the command wrote to stderr in that run."""
        print(self._runs[name].stderr_end(name), end="")

    def tell_changes(self) -> None:
        changed = self._sandbox.changed() if self._sandbox is not None else []
        if changed:
            more = f" and {len(changed) - 3} more" if changed[3:] else ""
            say(f"written in place, not in the sandbox: {', '.join(changed[:3])}{more}")

    def _environ(self, off: bool, cwd: Path) -> dict[str, str]:
        environ = {k: v for k, v in os.environ.items() if not k.startswith("STOKER_")}
        settings = self.wanted.settings._replace(off=off)
        environ |= {config.ARMED: "1", **settings.to_env(), "PWD": str(cwd)}
        if self._storage:
            environ[config.STORAGE] = self._storage
        if not environ.get("PYTHONHASHSEED", "").isdecimal():
            environ["PYTHONHASHSEED"] = str(SEED)
        return environ


# -- the verdict -------------------------------------------------------------------------------


def _verified(sides: _Sides) -> int:
    """Run both sides, compare them and print the verdict; return the exit code."""
    plain = sides.run(PLAIN, off=True)
    if not plain.num_batches:
        return _nothing(sides, plain)
    ours = sides.run(OURS, off=False)
    verdict = compare(plain, ours, OURS)
    _print(table.table(verdict.rows) + table.left(ours))
    if verdict.first is None:
        code = _equal(sides, plain, ours, verdict)
    else:
        code = _different(sides, plain, ours, verdict.first)
    sides.tell_changes()
    return code


def _nothing(sides: _Sides, plain: Side) -> int:
    limit_s = sides.wanted.limit_s
    if plain.exit_code:
        return _failed(
            sides, f"the command itself {table.ended(plain)} before any batch, without stoker"
        )
    if plain.met_limit:
        print(f"nothing to compare: no batch within {limit_s:g} s; raise --limit-s")
    else:
        print("nothing to compare: no loader was iterated by a Python that has stoker in it")
    return NOTHING_COMPARED


def _equal(sides: _Sides, plain: Side, ours: Side, verdict: Verdict) -> int:
    limit_s = sides.wanted.limit_s
    if plain.exit_code:
        return _failed(
            sides, f"equal so far, but the command itself {table.ended(plain)}, without stoker"
        )
    if not verdict.num_compared:
        print(f"nothing to compare: no batch {OURS} within {limit_s:g} s; raise --limit-s")
        return NOTHING_COMPARED
    _print(table.equal(verdict))
    if plain.met_limit or ours.met_limit:
        print(f"not all that was asked for: the limit of {limit_s:g} s (--limit-s) ended a run")
    return EQUAL


def _different(sides: _Sides, plain: Side, ours: Side, first: Difference) -> int:
    again = sides.run(AGAIN, off=True)
    between_plain = compare(plain, again, AGAIN).first
    if between_plain is not None:
        _print(table.undecided(first, between_plain))
        return UNDECIDED
    _print(table.different(first))
    if ours.exit_code != plain.exit_code:
        sides.show_stderr(OURS)
    return DIFFERENT


def _failed(sides: _Sides, what: str) -> int:
    print(what)
    sides.show_stderr(PLAIN)
    return COMMAND_FAILED


def _print(text: str) -> None:
    """Print, with files in the current folder named relative to it: a sandbox shows whole paths."""
    print(text.replace(f"{Path.cwd()}/", ""), end="", flush=True)


def help_text() -> str:
    """Return the help, made from the flags' own declaration."""
    lines = [
        "usage: stoker verify [flags] -- COMMAND ...",
        "",
        "Run a command plain, then with stoker, from the same seeds, and compare each batch and the",
        "training process's generators. If they differ it runs plain once more, to tell whether the",
        "script differs from itself.",
        "",
        "  stoker verify -- python train.py --epochs 1",
        "",
        *listed(FLAGS, DEFAULTS),
    ]
    return "\n".join([*lines, "", EXIT_CODES])
