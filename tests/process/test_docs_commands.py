"""Every stoker command that a page shows is one that stoker takes; those that need nothing are run."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from stoker import config
from stoker.cli import main as cli
from stoker.cli.flags import parse
from stoker.cli.tell.completions import SHELLS, commands
from tests.process.harness import finished

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "examples").rglob("*.md"),
]  # fmt: skip
FENCED = re.compile(r"^ *```[^\n]*\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(rf"(?<![\w/.-])stoker ({'|'.join([*cli.STARTS, *cli.TELLS])})\b(.*)")
# What a reader puts something of their own for.
PLACEHOLDERS = {
    "X": "1",
    "Y": "1",
    "HOST:PORT": "h:1",
    "ADDRESS": "auto",
    "N": "1",
    "PATTERN=CODE": "a=8bit",
}
TRAIN = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
for x, y in DataLoader(TensorDataset(torch.rand(64, 3), torch.arange(64)), 4, num_workers=2):
    print(float(x.sum()))
"""


def shown() -> dict[str, tuple[str, str]]:
    """Every command of a fenced block, as `page: command` -> subcommand, and what follows it."""
    found = {}
    for page in PAGES:
        for block in FENCED.findall(page.read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                is_typed = line.lstrip().startswith(("$", "%")) or re.match(r" *\w+\$ ", line)
                for match in COMMAND.finditer(line) if is_typed else ():
                    found[f"{page.relative_to(ROOT)}: {match[0].strip()}"] = (match[1], match[2])
    return found


SHOWN = shown()


def words_of(rest: str) -> list[str]:
    rest = rest.replace("\\|", "|").partition("|")[0].partition(" > ")[0].rstrip("'& ")
    return [PLACEHOLDERS.get(word, word) for word in shlex.split(rest, comments=True)]


def test_there_are_commands_to_check():
    assert len(SHOWN) > 20


@pytest.mark.parametrize("name", SHOWN)
def test_a_command_in_the_docs_is_one_that_stoker_takes(name):
    subcommand, rest = SHOWN[name]
    words = words_of(rest)
    known = commands()[subcommand]
    if subcommand == "completions":
        assert words[0].partition("|")[0] in (*SHELLS, "--help")
        return
    flags, left = parse(words, known.flags, subcommand)
    if flags is None:  # --help
        return
    assert bool([word for word in left if word != "--"]) == known.starts
    own = {setting.name for setting in config.SETTINGS}
    config.resolve({k: v for k, v in flags.items() if k in own}, {}, {})


SIMPLE = sorted({
    name.partition(": ")[2]: words_of(rest)
    for name, (subcommand, rest) in SHOWN.items()
    if subcommand in ("run", "verify") and words_of(rest)[-2:] == ["python", "train.py"]
    and not {"auto", "--cluster"} <= set(words_of(rest))
}.items())  # fmt: skip


@pytest.mark.few(4)
@pytest.mark.parametrize("words", [words for _, words in SIMPLE], ids=[name for name, _ in SIMPLE])
def test_a_command_that_needs_nothing_runs_as_it_stands(tmp_path, words):
    (tmp_path / "train.py").write_text(TRAIN)
    name = next(name for name, each in SIMPLE if each == words)
    command = [sys.executable, "-m", "stoker", name.split()[1], *words]
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    ran = finished(command, tmp_path, environ={"PATH": path}, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.leftovers == {}
