"""`stoker run [flags] -- COMMAND ...`: put the settings into the environment, become COMMAND.

Promise: after exec nothing of this process is left: pid, signals, stdin and exit code are the
command's own. Exit codes before that: 2 wrong flags or interpreter, 69 no cluster,
126/127 as a shell's.
"""

import os
import sys
from os.path import abspath, basename, dirname, isfile, join, realpath

from stoker import __version__, config, speak
from stoker.cli import reports
from stoker.cli.flags import split
from stoker.errors import ClusterUnavailable, ConfigError

WRONG_USE = 2
NO_CLUSTER = 69
CLUSTER_ANSWERS_WITHIN_S = 5.0
CANNOT_EXECUTE = 126
NOT_FOUND = 127
_PROBE = "import stoker; print(stoker.__file__); print(stoker.__version__)"
_TAKES_VALUE = "WX"  # python's own options that take a value, beside -c and -m


def main(words: list[str]) -> int:
    """Exec the command; returns an exit code only for --help or an error."""
    try:
        flags, command = split(words, config.SETTINGS, "run")
        if command is None:
            print(help_text(), end="")
            return 0
        table = config.from_pyproject(os.getcwd())
        settings, origins = config.resolve(flags, os.environ, table)
        command = completed(command)
        check_interpreter(command)
        if settings.report_json is not None:
            reports.make_room(settings.report_json)
        if settings.cluster is not None and not settings.off:
            check_cluster(settings.cluster, origins["cluster"])
        if settings.gradients is not None and not settings.off:
            check_gradients(origins["gradients"])
    except ConfigError as error:
        speak.say(str(error))
        return WRONG_USE
    except ClusterUnavailable as error:
        speak.say(str(error))
        return NO_CLUSTER
    environ = {k: v for k, v in os.environ.items() if not k.startswith("STOKER_")}
    environ |= {config.ARMED: "1", **settings.to_env()}
    if settings.cluster is not None and not settings.off:
        # Any will do, but all processes of the run must have one: it orders sets of strings.
        environ.setdefault("PYTHONHASHSEED", str(int.from_bytes(os.urandom(4)) or 1))
    return become(command, environ)


def completed(command: list[str]) -> list[str]:
    """Put this Python in front of a .py file. Raises ConfigError if there is no such file."""
    if not command[0].endswith(".py"):
        return command
    if not isfile(command[0]):
        raise ConfigError(f"no such script: {command[0]!r} in {os.getcwd()}")
    return [sys.executable, *command]


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

    ours = join(dirname(dirname(realpath(__file__))), "__init__.py")
    environ = {k: v for k, v in os.environ.items() if not k.startswith("STOKER_")}
    probe = subprocess.run(
        [python, "-c", _PROBE], capture_output=True, text=True, env=environ, check=False
    )
    found = probe.stdout.splitlines()
    if probe.returncode != 0:
        from stoker.cli.origin import advice

        raise ConfigError(
            f"{python} cannot import stoker, which runs from {sys.executable}; "
            f"install it there: {advice(python)}"
        )
    if realpath(found[0]) != ours and found[1] != __version__:
        raise ConfigError(
            f"{python} imports stoker {found[1]} from {found[0]}, but this is stoker "
            f"{__version__} from {ours}; install the same version in both"
        )


def check_gradients(who: str) -> None:
    """Check that gradients can be compressed here. who: asked for it.

    Raises ConfigError if a library is missing.
    """
    from importlib.util import find_spec

    missing = [name for name in ("numba", "numpy") if find_spec(name) is None]
    if missing:
        raise ConfigError(_needs(who, missing, "gradients"))


def _needs(who: str, missing: list[str], extra: str) -> str:
    from stoker.cli.origin import advice

    return f"{who} needs {', '.join(missing)}: {advice(sys.executable, extra)}"


def check_cluster(address: str, who: str) -> None:
    """Check that a cluster can be used here and that something answers there. who: named it.

    Raises ConfigError if a library is missing, ClusterUnavailable if nothing answers. What answers
    is asked who it is later, by the process that uses it.
    """
    from importlib.util import find_spec

    is_ray = not address.startswith("processes:")
    needed = ["cloudpickle", "cryptography", "xxhash", *(["ray"] if is_ray else [])]
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise ConfigError(_needs(who, missing, "cluster"))
    if is_ray:
        _knock(_current_cluster(who) if address == "auto" else address.removeprefix("ray://"), who)


def _current_cluster(who: str) -> str:
    """Read the address that `ray start` on this machine has noted. Source: Ray 2.60, ray.init."""
    if os.environ.get("RAY_ADDRESS", "auto") != "auto":
        return os.environ["RAY_ADDRESS"].removeprefix("ray://")
    file = join(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")
    try:
        with open(file, encoding="ascii") as opened:
            return opened.read().strip()
    except OSError:
        raise ClusterUnavailable(
            f"{who} auto: no Ray runs on this machine; start it with `ray start --head`, or "
            "name one: --cluster HOST:PORT"
        ) from None


def _knock(address: str, who: str) -> None:
    import socket

    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CLUSTER_ANSWERS_WITHIN_S).close()
    except (OSError, ValueError) as error:
        raise ClusterUnavailable(
            f"{who}: nobody answers at {address} ({error}); start a Ray cluster there, or drop "
            f"{who} to use this machine"
        ) from None


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


def become(command: list[str], environ: dict[str, str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # closed by whoever started us
            stream.flush()
    try:
        os.execvpe(command[0], command, environ)
    except FileNotFoundError:
        speak.say(f"command not found: {command[0]}")
        return NOT_FOUND
    except OSError as error:
        speak.say(f"cannot run {command[0]}: {error.strerror}")
        return CANNOT_EXECUTE


def help_text() -> str:
    """Return the help, made from the settings' own declaration."""
    lines = [
        "usage: stoker run [flags] -- COMMAND ...",
        "       stoker run [flags] train.py ARGS ...",
        "",
        "Run a command with stoker in every Python that it starts.",
        "",
        "  stoker run -- python train.py --epochs 3",
        "",
        "flags:",
    ]
    for setting in config.SETTINGS:
        lines += [
            f"  {setting.flag} {setting.metavar}".rstrip(),
            f"      {setting.meaning} [env: {setting.variable}]",
        ]
    return "\n".join(lines) + "\n"
