"""`stoker doctor [flags] -- COMMAND ...`: examines a script as plain PyTorch runs it; tells what would make it faster.

Promise: the command runs without stoker's doing until it is ended, and nothing of it is left, also after
Ctrl-C.
"""

import json
import os
import shlex
import threading
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
from stoker.doctor.facts import Facts
from stoker.doctor.plan import FOUND, PID, Plan
from stoker.doctor.screen import screen
from stoker.errors import ConfigError, StorageUnavailable
from stoker.verify.runner import Run

EXAMINED, COMMAND_FAILED, NOTHING_SEEN = 0, 4, 5
START_S = 600.0  # for the script to come to its first batch, beside the limit
QUIET_S = 60.0  # until a line tells that it has not
_KNOWN = {setting.name: setting for setting in config.SETTINGS}
FLAGS = (
    Setting(
        count_from(3), "N",
        "look at so many steps; default: until their speed is steady, twenty seconds at most", "steps",
    ),
    Setting(
        seconds, "S",
        "the examination takes about so long, from the first batch on; default: 60", "limit_s",
    ),
    Setting(
        _KNOWN["off"].parse, "",
        "print what was found as one JSON object in place of the text", "json",
    ),
    _KNOWN["price_trainer"],
    _KNOWN["price_worker"],
    _KNOWN["mount"],
)  # fmt: skip
DEFAULTS = {"steps": None, "limit_s": "60", "json": None}
EXIT_CODES = """\
exit codes:
  0  examined
  2  wrong flags or interpreter
  4  the command fails before, or while it is examined
  5  nothing to examine: no loader gave enough batches
  70 a bug of stoker's; 126, 127 the command cannot be started, as from a shell
"""


def main(words: list[str]) -> int:
    """Run the examination and return the exit code: see EXIT_CODES, and watched.py."""
    try:
        flags, command = split(words, FLAGS, "doctor")
        if command is None:
            print(help_text(), end="")
            return EXAMINED
        wanted = _Wanted(*(parsed(flag, flags, DEFAULTS.get(flag.name)) for flag in FLAGS))
        if Path(command[0]).name == "stoker":
            raise ConfigError(f"doctor runs the script itself; leave {' '.join(command[:2])!r} out")
        shown = shlex.join(command)
        command = run.completed(command)
        check_interpreter(command)
        mounts = {"mount": flags["mount"]} if "mount" in flags else {}
        asked = find(mounts).settings
        storage = start_storage(asked, "--mount") if asked.mount else ""
    except ConfigError as error:
        say(str(error))
        return run.WRONG_USE
    except StorageUnavailable as error:
        say(str(error))
        return run.NO_CLUSTER
    more = {config.STORAGE: storage} if storage else {}
    return watched(lambda folder: _examined(command, shown, folder, wanted, more))


class _Wanted(NamedTuple):
    steps: int | None
    limit_s: float
    json: bool | None
    price_trainer: float | None
    price_worker: float | None
    mount: config.Mounts | None


def _examined(
    command: list[str], shown: str, folder: Path, wanted: _Wanted, more: dict[str, str]
) -> int:
    """Run the command until it has been examined, and print what was found. more: its variables."""
    say(f"plain: {shown}")
    plan = Plan(str(folder), wanted.steps or 0, wanted.limit_s)
    one = Run(folder, plan.to_env(), START_S + 2 * wanted.limit_s)
    environ = {k: v for k, v in os.environ.items() if not k.startswith("STOKER_")}
    report = str(folder / "report.json")  # there is none without: whoever has a report is looked at
    settings = config.Settings(off=True, quiet=True, no_run_log=True, report_json=report)
    environ |= {config.ARMED: "1", **settings.to_env(), **more}
    timer = threading.Timer(QUIET_S, _say_if_none_yet, [folder])
    timer.daemon = True
    timer.start()
    try:
        exit_code = one.run(command, environ, Path.cwd())
    finally:
        timer.cancel()
    files = folder.glob(f"{FOUND}*.json")
    found = [Facts.from_json(json.loads(file.read_text())) for file in files]
    if found:
        facts = max(found, key=lambda each: each.plain.wall_s)
        if wanted.json:
            print(json.dumps(facts.to_json()))
        else:
            print(screen(facts, shown, wanted.price_trainer, wanted.price_worker), end="")
        if exit_code and facts.why:
            speak.write(f"the command ends with exit code {exit_code}\n{one.stderr_end('plain')}")
            return COMMAND_FAILED
        return EXAMINED
    if exit_code:
        print(f"the command ends with exit code {exit_code} before three batches")
        print(one.stderr_end("plain"), end="")
        return COMMAND_FAILED
    if not _has_begun(folder):
        why = "no loader of a Python that has stoker in it was iterated"
    elif exit_code == 0:
        why = "the script ended before one of its loaders had given enough batches"
    else:
        why = "no loader gave enough batches in time"
    print(f"nothing to examine: {why}")
    return NOTHING_SEEN


def _has_begun(folder: Path) -> bool:
    """Whether a process of the script has iterated a loader."""
    return any(folder.glob(f"{PID}*"))


def _say_if_none_yet(folder: Path) -> None:
    if not _has_begun(folder):
        say(
            f"no loader has been iterated in {QUIET_S:.0f} s; only a DataLoader's batches are examined; Ctrl-C ends this"
        )


def help_text() -> str:
    """Return the help, made from the flags' own declaration."""
    lines = [
        "usage: stoker doctor [flags] -- COMMAND ...",
        "",
        "Run a command for some steps as plain PyTorch, and tell what bounds it, what a sample costs by",
        "function, which of its settings hurt, and what would make it faster, by how much. Nothing is trained",
        "for long: the command is ended when all is known.",
        "",
        "  stoker doctor -- python train.py",
        "",
        *listed(FLAGS, [flag.name for flag in FLAGS]),
    ]
    return "\n".join([*lines, "", EXIT_CODES])
