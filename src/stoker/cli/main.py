"""The `stoker` command: finds the subcommand and runs it. Exit code 70 is our own bug."""

import sys
from collections.abc import Callable
from typing import Any

from stoker import speak

USAGE = """\
usage: stoker run [flags] -- COMMAND ...
       stoker verify [flags] -- COMMAND ...
       stoker probe [flags] -- COMMAND ...
       stoker status [flags]

Make an unmodified PyTorch training script as fast as its accelerator allows.

commands:
  run     run a command with stoker in it: stoker run -- python train.py
          (stoker run --help lists the flags)
  verify  run it plain and with stoker, and compare every batch: exit code 0 if they are equal
          (stoker verify --help lists the flags)
  probe   measure a data-parallel command's links, what its steps wait for, and what --gradients
          would bring (stoker probe --help lists the flags)
  status  the nodes of a Ray cluster, and what each run does there
          (stoker status --help lists the flags)

  --version, --help
"""


OUR_BUG = 70


def main(arguments: list[str] | None = None) -> int:
    """Run the command line `arguments` (without the program's name) and return its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] in ("run", "verify", "probe", "status"):
        try:
            return _subcommand(words[0])(words[1:])
        except Exception:
            import traceback

            traceback.print_exc()
            return OUR_BUG
    if words in (["--version"], ["-V"]):
        from stoker import __version__

        print(f"stoker {__version__}")
        return 0
    if words in (["--help"], ["-h"], ["help"]):
        print(USAGE, end="")
        return 0
    given = f"unknown command {words[0]!r}" if words else "a command is missing"
    speak.write(f"stoker: {given}\n\n{USAGE}")
    return 2


def _subcommand(name: str) -> Callable[[list[str]], int]:
    """Return the main() of a subcommand, which pays only for its own imports."""
    from importlib import import_module

    module: Any = import_module(f"stoker.cli.{name}")
    command: Callable[[list[str]], int] = module.main
    return command
