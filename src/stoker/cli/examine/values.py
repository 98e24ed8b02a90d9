"""Parses values of flags that are no settings of `stoker run`."""

from collections.abc import Mapping
from typing import Any

from stoker.config import Setting
from stoker.errors import ConfigError


def count_from(least: int) -> Any:
    """Return what parses a whole number that is so large at least."""

    def parse(text: str) -> int:
        if text.isdecimal() and int(text) >= least:
            return int(text)
        raise ConfigError(f"got {text!r}; give a number >= {least}")

    return parse


def seconds(text: str) -> float:
    """Parse seconds, more than none of them. Raises ConfigError."""
    try:
        parsed = float(text)
    except ValueError:
        parsed = 0.0
    if 0 < parsed < float("inf"):
        return parsed
    raise ConfigError(f"got {text!r}; give seconds > 0")


def parsed(flag: Setting, flags: Mapping[str, str], default: str | None = None) -> Any:
    """Return a flag's value, of what was given or the default; None without either. Raises ConfigError."""
    text = flags.get(flag.name, default)
    if text is None:
        return None
    try:
        return flag.parse(text)
    except ConfigError as error:
        raise ConfigError(f"{flag.flag}: {error}") from None
