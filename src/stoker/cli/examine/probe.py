"""`stoker probe [flags] -- torchrun ...`: measures links, what bounds a step, and a scheme's gain.

Promise: gradients and batches are torch's own; the command is ended after a dozen steps, and
nothing of it is left, also after Ctrl-C.
"""

import json
import os
from pathlib import Path

from stoker import config
from stoker.cli import run
from stoker.cli.checks import check_gradients, check_interpreter
from stoker.cli.examine import verify
from stoker.cli.examine.values import parsed
from stoker.cli.examine.watched import say, watched
from stoker.cli.flags import split
from stoker.errors import ConfigError
from stoker.verify.record import ENOUGH, PROBE, PROBED
from stoker.verify.runner import Run

MEASURED = 0
END_S = 1.0  # from the first rank that has seen enough to the end of all
LIMIT_S = "300"
LIMIT = next(flag for flag in verify.FLAGS if flag.name == "limit_s")
FLAGS = (LIMIT,)
USAGE = """\
usage: stoker probe [--limit-s S] -- COMMAND ...

Run a data-parallel command for a dozen steps, as it is, and print what the links between its ranks
give, what its steps wait for, and what compressed gradients should bring.

  stoker probe -- torchrun --nproc-per-node 4 train.py

On several machines start it on each, as the command itself; rank 0's prints.

flags:
  --limit-s S
      the command is ended after so many seconds, whatever was found; default: 300

exit codes:
  0  measured
  2  wrong flags or interpreter
  4  the command fails before
  5  nothing to measure: no DistributedDataParallel of several ranks took a dozen steps, or its
     gradients are its own business
  70 a bug of stoker's; 126, 127 the command cannot be started, as from a shell
"""


def main(words: list[str]) -> int:
    """Run the probe and return the exit code: see USAGE, and watched.py."""
    try:
        flags, command = split(words, FLAGS, "probe")
        if command is None:
            print(USAGE, end="")
            return MEASURED
        limit_s = parsed(LIMIT, flags, LIMIT_S)
        if Path(command[0]).name == "stoker":
            raise ConfigError(f"probe runs the script itself; leave {' '.join(command[:2])!r} out")
        command = run.completed(command)
        check_interpreter(command)
        check_gradients("probe")
    except ConfigError as error:
        say(str(error))
        return run.WRONG_USE
    return watched(lambda folder: _probed(command, folder, limit_s))


def _probed(command: list[str], folder: Path, limit_s: float) -> int:
    """Run the command, and print what its rank 0 has found."""
    say(f"plain: {' '.join(command)}")
    one = Run(folder, {PROBE: str(folder)}, limit_s, END_S)
    environ = {k: v for k, v in os.environ.items() if not k.startswith("STOKER_")}
    environ |= {config.ARMED: "1", **config.Settings(off=True, quiet=True).to_env()}
    exit_code = one.run(command, environ, Path.cwd())
    file = folder / PROBED
    if file.exists():
        found = json.loads(file.read_text())
        print(found["text"].removesuffix("\n"))
        return MEASURED if found["is_found"] else verify.NOTHING_COMPARED
    if (folder / ENOUGH).exists():
        print("rank 0 runs on another machine, and its stoker probe prints what was found")
        return MEASURED
    if exit_code:
        print(f"the command ends with exit code {exit_code} before a dozen steps")
        print(one.stderr_end("plain"), end="")
        return verify.COMMAND_FAILED
    why = "it ended before" if exit_code == 0 else f"none within {limit_s:g} s; raise --limit-s"
    what = (
        "no DistributedDataParallel of several ranks, each under stoker probe, took a dozen steps"
    )
    print(f"nothing to measure: {what}: {why}")
    return verify.NOTHING_COMPARED


def help_text() -> str:
    return USAGE
