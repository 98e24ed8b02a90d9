"""The lines of stoker's that the docs quote are lines that it says.

By their words: each run of words between values and punctuation stands in a string of the source.
The tutorial's by their shape as well: a small run, in which a worker is killed, and a verified one
say the same but for numbers and paths.
"""

import ast
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.utils.data

import stoker
from tests.process.harness import finished, under_stoker
from tests.process.pages import FENCED, ROOT, unsaid

DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
QUOTED = re.compile(r"`([^`]+)`")
# Not a message's own word: a name, number, path, placeholder, unit, or one of a few kinds.
VALUE = re.compile(
    r"batch \d+|[^\s,;:()]*[^a-z\s,;:()'-][^\s,;:()]*|'[^']*'|--?[\w-]+|\b(?:[a-z]|ms|numpy|plain|spawn)\b"
)


def lines_of(text: str) -> Iterator[str]:
    """What a page quotes of stderr, without `stoker: `."""
    for block in FENCED.findall(text):
        for line in block.splitlines():
            if line.startswith("stoker: "):
                yield line.removeprefix("stoker: ")
    for span in QUOTED.findall(FENCED.sub("", text)):
        if span.startswith("stoker: "):
            yield span.removeprefix("stoker: ")


def first_cells(text: str) -> Iterator[str]:
    """The quoted lines in the first column of errors.md's tables."""
    for row in re.findall(r"^\| (.*?)(?<!\\) \|", text, re.MULTILINE):
        yield from QUOTED.findall(row.replace("\\|", "|"))


def runs_of_words(line: str) -> list[str]:
    runs = re.split(r"[,;:()]|\.\.\.", VALUE.sub(";", line))
    return [" ".join(run.split()) for run in runs if len(run.split()) > 1]


def said_by(*sources: Path) -> str:
    """All strings of Python files, a line each, of an f-string as many as its parts."""
    parts = (
        " ".join(node.value.split())
        for source in sources
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    return "\n" + "\n".join(parts) + "\n"


def is_said(run: str, said: str) -> bool:
    """In one string; or in two, or in one and a word that is filled in, where one begins or ends."""
    words = run.split()
    cuts = [(" ".join(words[:k]), " ".join(words[k:])) for k in range(1, len(words))]
    return run in said or any(meet(left, right, said) for left, right in cuts)


def meet(left: str, right: str, said: str) -> bool:
    ends = re.search(rf"\b{re.escape(left)}\n", said) is not None
    begins = re.search(rf"\n{re.escape(right)}\b", said) is not None
    if " " in left or " " in right:
        return (ends or " " not in left) and (begins or " " not in right)
    return ends and f"\n{right}\n" in said


@pytest.fixture(scope="module")
def said() -> str:
    torchs = Path(torch.utils.data.__file__).parent
    return said_by(
        *Path(stoker.__file__).parent.rglob("*.py"),
        *torchs.rglob("*.py"),
        torchs.parents[1] / "_utils.py",
    )


def test_the_readme_is_one_screen_of_reading():
    assert len((ROOT / "README.md").read_text().splitlines()) < 120


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.stem)
def test_every_quoted_line_is_made_of_words_that_stoker_says(page, said):
    text = page.read_text()
    lines = [*lines_of(text), *(first_cells(text) if page.stem == "errors" else [])]
    unknown = {run: line for line in lines for run in runs_of_words(line) if not is_said(run, said)}
    assert unknown == {}
    assert page.stem not in ("errors", "tutorial") or lines


def test_a_line_that_nobody_says_is_found(said):
    line = "3 workers died and were all replaced, ...; it was silent for 2.5 s"
    runs = runs_of_words(line)
    assert runs == ["workers died and were all replaced", "it was silent for"]
    assert [is_said(run, said) for run in runs] == [False, True]


TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()


def test_the_tutorials_summary_is_that_of_a_run(tmp_path):
    command = [*under_stoker(quiet=False), sys.executable, "tutorial.py", "--kill"]
    ran = finished(command, tmp_path)
    assert ran.returncode == 0, ran.stderr
    quoted = [f"stoker: {line}" for line in lines_of(TUTORIAL) if "plain: " not in line]
    assert len(quoted) == 5  # head, loader, verdict and the dead worker; and a line of verify's
    assert [line.split()[1:3] for line in unsaid(quoted, ran.stderr)] == [["under", "stoker:"]]


def test_what_it_quotes_of_verify_is_what_verify_says(tmp_path):
    (block,) = (block for block in FENCED.findall(TUTORIAL) if "$ stoker verify -- " in block)
    script = ["python", "tutorial.py", "--data", ".data/photos"]
    python = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    verify = [sys.executable, "-m", "stoker", "verify", "--", *script]
    ran = finished(verify, tmp_path, environ=python)
    assert ran.returncode == 0, ran.stderr
    command, *quoted = block.splitlines()
    assert command.startswith("$ ")
    assert len(quoted) == 5
    assert unsaid(quoted, ran.stderr + ran.stdout) == []
