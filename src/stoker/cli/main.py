"""The `stoker` command: finds the subcommand and runs it. Exit code 70 is our own bug."""

import sys

USAGE = """\
usage: stoker run [flags] -- COMMAND ...

Make an unmodified PyTorch training script as fast as its accelerator allows.

commands:
  run     run a command with stoker in it: stoker run -- python train.py
          (stoker run --help lists the flags)

  --version, --help
"""


OUR_BUG = 70


def main(arguments: list[str] | None = None) -> int:
    """Exit code of the command line `arguments` (without the program's name)."""
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] == "run":
        from stoker.cli import run

        try:
            return run.main(words[1:])
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
    print(f"stoker: {given}\n\n{USAGE}", end="", file=sys.stderr)
    return 2
