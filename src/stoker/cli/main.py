"""The `stoker` command: finds the subcommand and runs it. Exit code 70 is our own bug."""

import sys

from stoker import speak

USAGE = """\
usage: stoker run [flags] -- COMMAND ...
       stoker doctor [flags] -- COMMAND ...
       stoker verify [flags] -- COMMAND ...
       stoker probe [flags] -- COMMAND ...
       stoker report [flags] [RUN [RUN]]
       stoker top [RUN]
       stoker runs | status | config | env [flags]
       stoker completions bash|zsh|fish

Make an unmodified PyTorch training script as fast as its accelerator allows.

commands:
  run          run a command with stoker in it: stoker run -- python train.py
  doctor       run it for some steps without stoker, and tell what bounds it and what would make it faster
  verify       run it plain and with stoker, and compare every batch: exit code 0 if they are equal
  probe        measure a data-parallel command's links, what its steps wait for, and what --gradients
               would bring
  runs         the runs that were logged on this machine
  top          a run of this machine while it lasts: its speed, and where the time of its steps goes
  report       a page on a run: what it waited for, and when; or two runs side by side
  status       the nodes of a Ray cluster, and what each run does there
  config       every setting, its value here, and where that comes from
  env          what a bug report needs: versions, machine, limits
  completions  a script by which your shell completes stoker's flags

flags:
  -h, --help     this text; stoker COMMAND --help (or stoker help COMMAND) lists a command's flags
  -V, --version  stoker's version
"""


OUR_BUG = 70
WRONG_USE = 2
EXAMINES = ("doctor", "verify", "probe")  # a command, for a while
STARTS = ("run", *EXAMINES)  # a command
TELLS = ("runs", "top", "report", "status", "config", "env", "completions")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line `arguments` (without the program's name) and return its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["help"] and len(words) == 2:
        words = [words[1], "--help"]
    if words and words[0] in (*STARTS, *TELLS):
        try:
            return _subcommand(words[0], words[1:])
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
    speak.say(f"{_wrong(words)}; stoker --help lists the commands")
    return WRONG_USE


def _subcommand(name: str, words: list[str]) -> int:
    """Run a subcommand, which pays only for its own imports."""
    if name in TELLS:
        from stoker.cli import tell

        return tell.main(name, words)
    if name in EXAMINES:
        from stoker.cli import examine

        code: int = examine.subcommand(name).main(words)
        return code
    from stoker.cli import run

    return run.main(words)


def _wrong(words: list[str]) -> str:
    from stoker.cli.flags import meant

    if not words:
        return "a command is missing"
    if words[0].endswith(".py") or words[0].startswith(("python", "torchrun", "accelerate")):
        return f"unknown command {words[0]!r}; write: stoker run -- {' '.join(words)}"
    what = "flag" if words[0].startswith("-") else "command"
    known = ("--help", "--version") if what == "flag" else (*STARTS, *TELLS, "help")
    return f"unknown {what} {words[0]!r}{meant(words[0], known, '--' if what == 'flag' else '')}"
