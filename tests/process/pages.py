"""The pages that users read, their fenced blocks, and how a quoted line is compared with a said one."""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]  # fmt: skip
FENCED = re.compile(r"^ *```[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
TYPED = re.compile(r"^ *```(console|bash|sh)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
PROMPT = re.compile(r"(?:\w+ ?)*[$] +")


@dataclass(frozen=True)
class Typed:
    """A block of commands to type, with what the page shows of their output."""

    page: str
    commands: tuple[str, ...]
    shown: tuple[str, ...]


def blocks() -> Iterator[Typed]:
    for page in PAGES:
        for kind, text in TYPED.findall(page.read_text()):
            lines = textwrap.dedent(text).splitlines()
            lines = lines if kind == "console" else [f"$ {line}" for line in lines]
            yield Typed(str(page.relative_to(ROOT)), *told_apart(lines))


def told_apart(lines: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The commands of a block, each with all its lines, and the lines in between: their output."""
    commands: list[str] = []
    shown: list[str] = []
    until: str | None = None  # the line that ends the command under way
    for line in lines:
        prompt = PROMPT.match(line)
        is_rest = bool(commands) and (until is not None or commands[-1].endswith("\\"))
        if is_rest:
            commands[-1] += f"\n{line}"
            until = None if line.strip() == until else until
        elif prompt:
            commands.append(line[prompt.end() :])
            here_document = re.search(r"<<'(\w+)'", line)
            is_loop = commands[-1].startswith("for ")
            until = here_document[1] if here_document else "done" if is_loop else None
        else:
            shown.append(line)
    return tuple(commands), tuple(filter(str.strip, shown))


def as_pattern(line: str) -> re.Pattern[str]:
    """What a quoted line stands for: any number, path, unit or interpreter, and all for `...`."""
    pattern = re.escape(line).replace(r"\ ", " ")
    pattern = re.sub(r"(\\\.){3}", ".+?", pattern)
    pattern = re.sub(r"\b[KMG]iB\b", "[KMG]?i?B", pattern)
    pattern = re.sub(r"[^ ]*/[^ :]*", r"\\S*?", pattern)
    pattern = re.sub(r"\d[\d,]*", r"[\\d,]+", pattern)
    pattern = pattern.replace("batches", "batch(?:es)?")
    return re.compile(pattern.replace("python ", r"\S*python\S* "))


def unsaid(quoted: list[str], said: str) -> list[str]:
    """The quoted lines that no line of what was said is an instance of."""
    lines = [" ".join(line.split()) for line in said.splitlines()]
    return [q for q in quoted if not any(map(as_pattern(" ".join(q.split())).fullmatch, lines))]
