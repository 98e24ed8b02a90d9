"""`stoker run [flags] -- COMMAND ...`: put the settings into the environment, become COMMAND.

Promise: after exec nothing of this process is left: pid, signals, stdin and exit code are the
command's own. Exit codes before that: 2 wrong flags or interpreter, 69 no cluster,
126/127 as a shell's.
"""

import os
import sys
from os.path import isfile

from stoker import __version__, config, speak
from stoker.cli.checks import (
    check_cluster,
    check_gradients,
    check_interpreter,
    check_page,
    check_tensorboard,
    make_room,
    start_storage,
)
from stoker.cli.flags import listed, split
from stoker.cli.settings import find
from stoker.errors import ClusterUnavailable, ConfigError, StorageUnavailable
from stoker.reports.ranks import local_rank

WRONG_USE = 2
NO_CLUSTER = 69
CANNOT_EXECUTE = 126
NOT_FOUND = 127


def main(words: list[str]) -> int:
    """Exec the command; returns an exit code only for --help or an error."""
    try:
        flags, command = split(words, config.SETTINGS, "run")
        if command is None:
            print(help_text(), end="")
            return 0
        settings, origins, _ = find(flags)
        command = completed(command)
        check_interpreter(command)
        if settings.report_json is not None:
            make_room(settings.report_json)
        if settings.cluster is not None and not settings.off:
            check_cluster(settings.cluster, origins["cluster"])
        if settings.gradients is not None and not settings.off:
            check_gradients(origins["gradients"])
        if settings.page is not None:
            check_page(settings.page_token)
        if settings.tensorboard is not None:
            check_tensorboard(origins["tensorboard"])
        storage = start_storage(settings, origins["mount"]) if settings.mount else ""
    except ConfigError as error:
        speak.say(str(error))
        return WRONG_USE
    except (ClusterUnavailable, StorageUnavailable) as error:
        speak.say(str(error))
        return NO_CLUSTER
    if settings.verbose:
        given = ", ".join(f"{name}={getattr(settings, name)}" for name in origins)
        speak.say(f"stoker {__version__} starts {' '.join(command)}; settings: {given}")
    environ = {k: v for k, v in os.environ.items() if not k.startswith("STOKER_")}
    environ |= {config.ARMED: "1", **settings.to_env()}
    if storage:
        environ[config.STORAGE] = storage
    if origins:
        environ[config.ORIGINS] = "\n".join(f"{name}={where}" for name, where in origins.items())
    if settings.cluster is not None and not settings.off:
        # Any will do, but all processes of the run must have one: it orders sets of strings.
        environ.setdefault("PYTHONHASHSEED", str(int.from_bytes(os.urandom(4)) or 1))
    if settings.page is not None and local_rank(os.environ) == 0:  # one page a machine
        from stoker.live.address import announce

        environ[config.PAGE_URL] = announce(settings.page, settings.page_token)
    return become(command, environ)


def completed(command: list[str]) -> list[str]:
    """Put this Python in front of a .py file. Raises ConfigError if there is no such file."""
    if not command[0].endswith(".py"):
        return command
    if not isfile(command[0]):
        raise ConfigError(f"no such script: {command[0]!r} in {os.getcwd()}")
    return [sys.executable, *command]


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
        *listed(config.SETTINGS),
    ]
    return "\n".join(lines) + "\n"
