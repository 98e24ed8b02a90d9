"""Splits a command line into flags and a command, for every subcommand, as argparse would.

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
    settings = tuple(settings)
    known = {setting.flag: setting for setting in settings}
    known |= {f"-{setting.short}": setting for setting in settings if setting.short}
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] not in ("--", "-"):
        first = rest.pop(0)
        for word, has_value, value in _spelled_out(first, known):
            if word in ("--help", "-h"):
                return None, rest
            if word not in known:
                raise ConfigError(
                    f"unknown flag {word!r}{meant(word, known, '--')}"
                    f"{' before the command' if hint else ''}; stoker {name} --help lists the flags{hint}"
                )
            setting = known[word]
            if setting.metavar.startswith("[") and not has_value:
                value = rest.pop(0) if rest and _is_taken(setting, rest[0]) else "0"
            elif setting.metavar and not has_value:
                if not rest or rest[0] == "--":
                    raise ConfigError(f"{word} needs a value: {setting.metavar}")
                value = rest.pop(0)
            if setting.metavar and not value:
                raise ConfigError(f"{word} needs a value: {setting.metavar}; it is empty")
            before = f"{flags[setting.name]}\n" if setting.name in flags else ""
            flags[setting.name] = (before if setting.is_repeated else "") + (value or "1")
    return flags, rest


def _is_taken(setting: Setting, word: str) -> bool:
    """Whether a word is the value of a flag that needs none, and not the command."""
    try:
        setting.parse(word)
    except ConfigError:
        return False
    return True


def _spelled_out(word: str, known: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return the flags of one word, each as (flag, "=" if it has a value, value): `-qv` is two."""
    letters = [f"-{letter}" for letter in word[1:]]
    if not word.startswith("--") and set(letters) <= {*known, "-h"}:
        return [(letter, "", "") for letter in letters]
    return [word.partition("=")]


def meant(word: str, known: Iterable[str], prefix: str = "") -> str:
    """Return ` (did you mean X?)` for the known word that is most like this one, or nothing.

    prefix: that all of them have, which makes none more like another.
    """
    from difflib import get_close_matches  # 3 ms, for the rarer case

    rests = [each.removeprefix(prefix) for each in known]
    like = get_close_matches(word.removeprefix(prefix), rests, n=1, cutoff=0.66)
    return f" (did you mean {prefix}{like[0]}?)" if like else ""


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


def listed(settings: Iterable[Setting], own: Iterable[str] = ()) -> list[str]:
    """Return the lines of a help for these settings, under the headings of their groups.

    own: names of those that are the subcommand's, without a variable.
    """
    lines: list[str] = []
    heading = None
    for setting in settings:
        if setting.group != heading:
            heading = setting.group
            lines += [*([""] if lines else []), f"{heading or 'flags'}:"]
        variable = "" if setting.name in own else f" [env: {setting.variable}]"
        lines += [f"  {setting.spelled}", f"      {setting.meaning}{variable}"]
    return lines
