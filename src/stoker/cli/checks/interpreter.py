"""Checks that the Python which will run the command imports this very stoker.

Uses neither pathlib nor shutil: they cost 15 ms of the 60 that `stoker run` may cost.
"""

import os
import sys
from os.path import abspath, basename, dirname, isfile, join, realpath

from stoker import __version__, speak
from stoker.errors import ConfigError

_PROBE = "import stoker; print(stoker.__file__); print(stoker.__version__)"
_TAKES_VALUE = "WX"  # python's own options that take a value, beside -c and -m


def check_interpreter(command: list[str]) -> None:
    """Check that the command's Python imports this stoker. Raises ConfigError that names both.

    A command whose interpreter cannot be told (a shell script, srun) is not checked.
    """
    python = interpreter_of(command)
    if python is None:
        return
    if "S" in _interpreter_flags(command):
        speak.say("python -S skips the line that arms stoker: the run will be plain Python")
        return
    if _same_file(python, sys.executable):
        return
    import subprocess  # 5 ms, for the rarer case

    ours = join(dirname(dirname(dirname(realpath(__file__)))), "__init__.py")
    environ = {k: v for k, v in os.environ.items() if not k.startswith("STOKER_")}
    probe = subprocess.run(
        [python, "-c", _PROBE], capture_output=True, text=True, env=environ, check=False
    )
    found = probe.stdout.splitlines()
    if probe.returncode != 0:
        from stoker.cli.checks.origin import advice

        raise ConfigError(
            f"{python} cannot import stoker, which runs from {sys.executable}; "
            f"install it there: {advice(python)}"
        )
    if realpath(found[0]) != ours and found[1] != __version__:
        raise ConfigError(
            f"{python} imports stoker {found[1]} from {found[0]}, but this is stoker "
            f"{__version__} from {ours}; install the same version in both"
        )


def interpreter_of(command: list[str]) -> str | None:
    """Return the path of the Python that will run the command; None if that cannot be told."""
    program = which(command[0])
    if program is None:
        return None
    if basename(program).startswith(("python", "pypy")):
        return program
    try:
        with open(program, "rb") as file:
            first = file.readline(1024)
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    words = first[2:].decode(errors="replace").split()
    if len(words) > 1 and basename(words[0]) == "env":
        words = [which(words[1]) or words[1]]
    return words[0] if words and basename(words[0]).startswith("python") else None


def which(program: str) -> str | None:
    """Find a program as the shell would; shutil.which does so too, but costs 10 ms to import."""
    folders = [""] if os.sep in program else os.get_exec_path()
    for folder in folders:
        path = join(folder, program)
        if isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def _interpreter_flags(command: list[str]) -> str:
    """Return the letters of the options that python itself gets."""
    letters = ""
    words = iter(command[1:]) if "python" in basename(command[0]) else iter(())
    for word in words:
        if not word.startswith("-") or word.startswith("--") or word == "-":
            break
        for i, letter in enumerate(word[1:], 1):
            if letter in "cm":
                return letters
            if letter in _TAKES_VALUE:
                if i == len(word) - 1:
                    next(words, None)
                break
            letters += letter
    return letters


def _same_file(one: str, other: str) -> bool:
    """Whether the path is the same, not the file: virtual environments share one binary."""
    a, b = abspath(one), abspath(other)
    return a == b or (dirname(a) == dirname(b) and realpath(a) == realpath(b))
