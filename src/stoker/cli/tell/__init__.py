"""Holds the subcommands that only tell something: each pays for its own imports alone."""

from importlib import import_module


def main(name: str, words: list[str]) -> int:
    """Run the subcommand `name` with its words, and return its exit code."""
    code: int = import_module(f"{__name__}.{name}").main(words)
    return code
