"""Holds the subcommands that only tell something: each pays for its own imports alone."""

from importlib import import_module

from stoker import speak
from stoker.errors import ConfigError

WRONG_USE = 2


def main(name: str, words: list[str]) -> int:
    """Run the subcommand `name` with its words, and return its exit code."""
    module = import_module(f"{__name__}.{name}")
    try:
        code: int = module.main(words)
    except ConfigError as error:
        speak.write(f"stoker {name}: {error}\n\n{module.USAGE}")
        return WRONG_USE
    return code
