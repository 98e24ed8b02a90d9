"""Splits a command line into flags and a command, for every subcommand.

Not argparse: its import takes 3 to 7 ms of the 60 that `stoker run` may cost, and it takes the
command's own flags for ours where they stand before the first `--`.
"""

from collections.abc import Iterable

from stoker.config import Setting
from stoker.errors import ConfigError


def parse(
    words: list[str], settings: Iterable[Setting], name: str, hint: str = ""
) -> tuple[dict[str, str] | None, list[str]]:
    """Parse the flags at the beginning: setting name -> text, or None if one is --help.

    Returns them and the words behind them. settings: those that the subcommand `name` takes; hint:
    ends what is said of an unknown flag. Raises ConfigError.
    """
    flags: dict[str, str] = {}
    known = {setting.flag: setting for setting in settings}
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "--":
        word, has_value, value = rest.pop(0).partition("=")
        if word in ("--help", "-h"):
            return None, rest
        if word not in known:
            raise ConfigError(
                f"unknown flag {word!r}{' before the command' if hint else ''}; "
                f"stoker {name} --help lists the flags{hint}"
            )
        if known[word].metavar and not has_value:
            if not rest or rest[0] == "--":
                raise ConfigError(f"{word} needs a value: {known[word].metavar}")
            value = rest.pop(0)
        if known[word].metavar and not value:
            raise ConfigError(f"{word} needs a value: {known[word].metavar}; it is empty")
        flags[known[word].name] = value or "1"
    return flags, rest


def split(
    words: list[str], settings: Iterable[Setting], name: str
) -> tuple[dict[str, str], list[str] | None]:
    """Parse the flags and the command behind them; None for --help. See `parse`."""
    flags, rest = parse(words, settings, name, ", the command's own go after --")
    if flags is None:
        return {}, None
    if rest[:1] == ["--"]:
        rest = rest[1:]
    if not rest:
        raise ConfigError(f"no command given; write: stoker {name} [flags] -- python train.py")
    return flags, rest
