"""Finds a run's settings: flags, variables, the nearest pyproject.toml upwards, the user's file.

Promise: a variable or key that is nearly a setting's name ends the command, with the name that
was meant; reads nothing but these two files.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from stoker import config, speak
from stoker.cli.flags import meant
from stoker.config import SETTINGS, Settings
from stoker.errors import ConfigError

# Variables that begin as settings do and are none: cli/run.py, verify/record.py, deploy/.
OTHERS = (
    config.ARMED,
    "STOKER_PROOF",
    "STOKER_PROBE",
    "STOKER_DOCTOR",
    "STOKER_ENV",
    config.STORAGE,
    config.ORIGINS,
    config.PAGE_URL,
)


class Found(NamedTuple):
    """Settings, where each that was given comes from, and the files that were read."""

    settings: Settings
    origins: dict[str, str]
    files: list[str]


def find(flags: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> Found:
    """Return the settings of a command with these flags. Raises ConfigError."""
    check_variables(environ)
    project, table = from_pyproject(os.getcwd())
    user, keys = from_user_file(environ)
    settings, origins = config.resolve(flags, environ, table, keys)
    return Found(settings, origins, [file for file in (project, user) if file])


def check_variables(environ: Iterable[str]) -> None:
    """Raise ConfigError for a STOKER_* variable that is nearly a setting's; name any other that is
    none in a line."""
    known = [setting.variable for setting in SETTINGS]
    for name in environ:
        if name.startswith("STOKER_") and name not in known and name not in OTHERS:
            if hint := meant(name, known, "STOKER_"):
                raise ConfigError(f"{name} is no setting{hint}")
            speak.say(f"{name} is no setting of stoker's; `stoker config` lists them")


def from_pyproject(folder: str) -> tuple[str, dict[str, str]]:
    """Return the nearest pyproject.toml with a [tool.stoker] table, from `folder` upwards, and that
    table as text; ("", {}) if there is none. Raises ConfigError on a key that no setting has.

    Above `folder` a file counts only if it is root's, this user's or of who owns the folder: in /tmp
    anybody may put one, and it says where code is sent.
    """
    owners = {0, os.getuid(), _owner(folder)}
    start = folder
    while True:
        file = os.path.join(folder, "pyproject.toml")
        text = _read(file) if folder == start or _owner(file) in owners else ""
        if "[tool.stoker]" in text:  # tomllib costs 5 ms to import
            table = _parsed(file, text).get("tool", {}).get("stoker")
            if isinstance(table, dict):  # else it stands in a string or comment
                return file, _texts(f"{file}: [tool.stoker]", table)
        above = os.path.dirname(folder)
        if above == folder:
            return "", {}
        folder = above


def from_user_file(environ: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the user's file and its keys as text; ("", {}) if there is none. Raises ConfigError."""
    folder = environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    file = os.path.join(folder, config.USER_FILE)
    text = _read(file)
    return (file, _texts(file, _parsed(file, text))) if text else ("", {})


def _text(value: object) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _owner(path: str) -> int:
    try:
        return os.stat(path).st_uid
    except OSError:
        return -1


def _read(file: str) -> str:
    try:
        with open(file, encoding="utf-8") as opened:
            return opened.read()
    except (OSError, UnicodeDecodeError):
        return ""


def _parsed(file: str, text: str) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: {error}") from None


def _texts(where: str, table: Mapping[str, object]) -> dict[str, str]:
    found = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in Settings._fields:
            raise ConfigError(f"{where} has no setting {key!r}{meant(name, Settings._fields)}")
        found[name] = "1" if value is True else _text(value)
    return found
