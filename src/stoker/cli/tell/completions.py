"""`stoker completions SHELL`: prints a script by which a shell completes stoker's command line.

Promise: made from the settings' own declaration, so that no flag is missing; completes a command
behind the flags as the shell would without stoker.
"""

from collections.abc import Iterable
from typing import NamedTuple

from stoker import config, speak
from stoker.config import Setting

USAGE = """\
usage: stoker completions bash|zsh|fish

Print a script that completes stoker's commands, flags and values. To have it in every shell:

  bash   stoker completions bash > ~/.local/share/bash-completion/completions/stoker
  zsh    echo 'source <(stoker completions zsh)' >> ~/.zshrc      (behind compinit)
  fish   stoker completions fish > ~/.config/fish/completions/stoker.fish

exit codes: 0; 2 another shell
"""
WRONG_USE = 2
SHELLS = ("bash", "zsh", "fish")
VALUES = {  # what a metavar does not say, or says with more than words
    "workers": "", "cluster": "auto", "gradients": "bf16 8bit 4bit best bf16+ef 8bit+ef 4bit+ef best+ef",
}  # fmt: skip


class Command(NamedTuple):
    """A subcommand. starts: whether a command of the user's follows its flags."""

    flags: tuple[Setting, ...]
    starts: bool
    words: str = ""


def commands() -> dict[str, Command]:
    from stoker.cli import examine
    from stoker.cli.main import EXAMINES, STARTS, TELLS
    from stoker.cli.tell import report, runs, status, top

    return {
        "run": Command(config.SETTINGS, True),
        **{name: Command(examine.subcommand(name).FLAGS, True) for name in EXAMINES},
        "runs": Command(runs.FLAGS, False),
        "report": Command(report.FLAGS, False),
        "top": Command(top.FLAGS, False),
        "status": Command(status.FLAGS, False),
        "config": Command(config.SETTINGS, False),
        "env": Command((), False),
        "completions": Command((), False, " ".join(SHELLS)),
        "help": Command((), False, " ".join([*STARTS, *TELLS])),
    }


def main(words: list[str]) -> int:
    """Print the script and return the exit code; see USAGE."""
    if words in (["--help"], ["-h"]):
        print(USAGE, end="")
        return 0
    if len(words) != 1 or words[0] not in SHELLS:
        speak.say(f"completions: got {' '.join(words)!r}; give {', '.join(SHELLS)}")
        return WRONG_USE
    print({"bash": bash, "zsh": zsh, "fish": fish}[words[0]](), end="")
    return 0


def values(setting: Setting) -> str:
    """Return the words that a flag may have as its value, or "" if they cannot be listed."""
    fixed = (word for word in setting.metavar.split("|") if word.islower())
    return VALUES.get(setting.name, " ".join(fixed))


def spellings(settings: Iterable[Setting]) -> str:
    letters = [f"-{setting.short}" for setting in settings if setting.short]
    return " ".join([*(setting.flag for setting in settings), *letters, "--help", "-h"])


def bash() -> str:
    known = commands()
    flags = "".join(f"    {name}) echo '{spellings(c.flags)}' ;;\n" for name, c in known.items())
    every = {
        setting.flag: setting for c in known.values() for setting in c.flags if setting.metavar
    }
    of_flags = "".join(
        f"    {flag}) echo '{'@file' if setting.metavar == 'FILE' else values(setting)}' ;;\n"
        for flag, setting in every.items()
    )
    words = "".join(f"    {name}) echo '{c.words}' ;;\n" for name, c in known.items() if c.words)
    starting = "|".join(name for name, c in known.items() if c.starts)
    return _BASH.format(
        commands=" ".join(known), flags=flags, values=of_flags, words=words, starting=starting
    )


_BASH = """\
# bash completion of stoker; made by `stoker completions bash`
_stoker_flags() {{
  case $1 in
{flags}  esac
}}
_stoker_values() {{
  case $1 in
{values}    *) return 1 ;;
  esac
}}
_stoker_words() {{
  case $1 in
{words}  esac
}}
_stoker() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} command=${{COMP_WORDS[1]}} i=2 known
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{commands} --help --version' -- "$word"))
    return
  fi
  while [ "$i" -lt "$COMP_CWORD" ]; do  # over flags, to where the user's command begins
    case ${{COMP_WORDS[i]}} in
      --) i=$((i + 1)); break ;;
      -*) if _stoker_values "${{COMP_WORDS[i]}}" > /dev/null; then
            if [ "$((i + 1))" -eq "$COMP_CWORD" ] || [ "${{COMP_WORDS[i + 1]}}" = = ]; then break; fi
            i=$((i + 1))
          fi ;;
      *) break ;;
    esac
    i=$((i + 1))
  done
  if [ "$i" -lt "$COMP_CWORD" ]; then
    case ${{COMP_WORDS[i]}} in
      -*) [ "$word" = = ] && word=
          known=$(_stoker_values "${{COMP_WORDS[i]}}")
          if [ "$known" = @file ]; then COMPREPLY=($(compgen -f -- "$word"))
          else COMPREPLY=($(compgen -W "$known" -- "$word")); fi
          return ;;
    esac
  fi
  if [ "$i" -eq "$COMP_CWORD" ] && [ "${{word#-}}" != "$word" ]; then
    COMPREPLY=($(compgen -W "$(_stoker_flags "$command")" -- "$word"))
    return
  fi
  known=$(_stoker_words "$command")
  if [ -n "$known" ]; then COMPREPLY=($(compgen -W "$known" -- "$word")); return; fi
  case $command in
    {starting})
      if [ "$i" -eq "$COMP_CWORD" ]; then COMPREPLY=($(compgen -c -f -- "$word"))
      else COMPREPLY=($(compgen -f -- "$word")); fi ;;
  esac
}}
complete -o filenames -F _stoker stoker
"""


def zsh() -> str:
    """Return bash's script behind zsh's own bridge to such scripts."""
    return (
        "# zsh completion of stoker; made by `stoker completions zsh`\n"
        "autoload -Uz bashcompinit && bashcompinit\n"
        + bash().replace("complete -o filenames -F", "complete -F")
    )


def fish() -> str:
    known = commands()
    lines = ["# fish completion of stoker; made by `stoker completions fish`"]
    names = " ".join(known)
    none_yet = f"not __fish_seen_subcommand_from {names}"
    lines += [f"complete -c stoker -n '{none_yet}' -f -a '{names}'"]
    for name, command in known.items():
        seen = f"complete -c stoker -n '__fish_seen_subcommand_from {name}'"
        if command.words:
            lines.append(f"{seen} -f -a '{command.words}'")
        for setting in command.flags:
            lines.append(f"{seen} {_fish_flag(setting)}")
    return "\n".join(lines) + "\n"


def _fish_flag(setting: Setting) -> str:
    letter = f" -s {setting.short}" if setting.short else ""
    value = f" -x -a '{values(setting)}'" if setting.metavar else ""
    value = " -r" if setting.metavar == "FILE" else value
    meaning = setting.meaning.partition(";")[0].replace("'", "\\'")
    return f"-l {setting.flag[2:]}{letter}{value} -d '{meaning}'"
