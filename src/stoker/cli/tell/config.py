"""`stoker config`: shows every setting, its value here, and where that comes from."""

from stoker import config, speak
from stoker.cli.flags import parse
from stoker.cli.settings import find
from stoker.errors import ConfigError
from stoker.tables import aligned

USAGE = """\
usage: stoker config [flags of stoker run]

Show every setting, its value in this folder, and where that comes from: a flag, a variable, the
nearest pyproject.toml upwards that has a [tool.stoker] table, ~/.config/stoker/config.toml (keys as
in that table), or the default. What stands first in this list wins.

exit codes: 0; 2 a flag, variable or file that cannot be
"""
WRONG_USE = 2


def main(words: list[str]) -> int:
    """Print the settings and return the exit code; see USAGE."""
    try:
        flags, rest = parse(words, config.SETTINGS, "config")
        if flags is None:
            print(USAGE, end="")
            return 0
        if rest:
            raise ConfigError(f"takes no command: {' '.join(rest)!r}")
        settings, origins, files = find(flags)
    except ConfigError as error:
        speak.say(f"config: {error}")
        return WRONG_USE
    rows = [("setting", "value", "origin")]
    for setting in config.SETTINGS:
        value = getattr(settings, setting.name)
        rows.append((setting.name, shown(value, setting), origins.get(setting.name, "default")))
    print(aligned(rows), end="")
    print("".join(f"\nread: {file}" for file in files) or "\nread: no file", end="\n")
    return 0


def shown(value: object, setting: config.Setting) -> str:
    """Return a value as one would give it; of a default that depends, how it is found."""
    if value is True or value is False:
        return "on" if value else "off"
    if value is None:
        _, found, default = setting.meaning.rpartition("; default: ")
        return default if found else "none"
    return str(value)
