"""Write what is generated into the docs, and say what in them is no longer true.

usage: scripts/docs.py [--check]      --check writes nothing; exit code 1 where anything is stale

Promise: a generated block (settings, help, rooms, arrows, the decider's table, digest encoding) is what the code says; every relative
link leads somewhere; every error has its heading in docs/errors.md; every test named exists.
Ban: touches nothing outside its marker lines; imports no torch.
"""

import argparse
import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from tests.unit import test_layers as layers  # noqa: E402

from stoker import config, errors  # noqa: E402  # this checkout's, installed or not
from stoker.cli import examine, run  # noqa: E402
from stoker.reports import digest  # noqa: E402
from stoker.scheduler import events, rules, state  # noqa: E402

BLOCK = re.compile(
    r"<!-- (\w+): begin; written by scripts/docs\.py, do not edit -->\n(.*?)<!-- \1: end -->",
    re.DOTALL,
)
FENCED = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")
TEST = re.compile(r"\btest_\w+\b(?!\.py)")


def settings_table() -> str:
    head = "| flag | variable | key | default | meaning |\n|---|---|---|---|---|\n"
    return head + "".join(map(_setting_row, config.SETTINGS))


def _setting_row(setting: config.Setting) -> str:
    flag = f"{setting.flag} {setting.metavar}".strip().replace("|", "\\|")
    meaning, _, said = setting.meaning.partition("; default: ")
    plain = "off" if setting.default is False else "none"
    default = said or (f"`{setting.default}`" if setting.default else plain)
    return f"| `{flag}` | `{setting.variable}` | `{setting.name}` | {default} | {meaning} |\n"


def help_text() -> str:
    return f"```text\n{run.help_text()}```\n"


def verify_help() -> str:
    return f"```text\n{examine.subcommand('verify').help_text()}```\n"


def doctor_help() -> str:
    return f"```text\n{examine.subcommand('doctor').help_text()}```\n"


def probe_help() -> str:
    return f"```text\n{examine.subcommand('probe').help_text()}```\n"


def digest_encoding() -> str:
    """The part of reports/digest.py's docstring that publishes the encoding."""
    return (digest.__doc__ or "").partition("**The encoding.** ")[2].lstrip()


def phases() -> str:
    """The decider's table as a picture, and as a table: event by phase, the rule that it calls."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for phase, of_phase in rules.TABLE.items():
        for event, rule in of_phase.items():
            for to in rule.to:
                arrows.setdefault((phase.name, to.name), []).append(event.__name__)
    drawn = "".join(f"    {a} --> {b}: {', '.join(by)}\n" for (a, b), by in arrows.items())
    means = "".join(f"- `{phase.name}`: {phase.value}\n" for phase in state.Phase)
    head = "".join(f" {phase.name} |" for phase in rules.TABLE)
    rows = "".join(
        f"| `{event.__name__}` |{''.join(_rule_cell(of_phase, event) for of_phase in rules.TABLE.values())}\n"
        for event in events.Event.__args__
    )
    return (
        f"```mermaid\nstateDiagram-v2\n    [*] --> HOME\n{drawn}```\n\n{means}\n"
        f"| event |{head}\n|---|{'---|' * len(rules.TABLE)}\n{rows}"
    )


def _rule_cell(of_phase: dict[type[events.Event], rules.Rule], event: type[events.Event]) -> str:
    if event not in of_phase:
        return " cannot be |"
    act = of_phase[event].act
    only = " (iterables)" if event in rules.OF_ITERABLES else ""
    return f" `{act.__module__.rpartition('.')[2]}.{act.__name__}`{only} |"


def rooms() -> str:
    """Every folder and file of src/stoker with the first line of its docstring."""
    files = sorted(layers.FILES, key=lambda name: (name.count(".") > 0, name))
    lines = [_tree_line(0, f"{name}.py", name) for name in files if "." not in name]
    for room in sorted((*layers.ARROWS, *layers.ALCOVES, *layers.HALLS)):
        folder = room.replace("/", ".")
        lines.append(
            _tree_line(room.count("/"), f"{room.rpartition('/')[2]}/", f"{folder}.__init__")
        )
        inside = [n for n in files if n.rpartition(".")[0] == folder and not n.endswith("__init__")]
        depth = room.count("/") + 1
        lines += [_tree_line(depth, f"{n.rpartition('.')[2]}.py", n) for n in inside]
    return "```text\nsrc/stoker/\n" + "\n".join(lines) + "\n```\n"


def _tree_line(depth: int, name: str, module: str) -> str:
    text = ast.get_docstring(ast.parse(layers.FILES[module].read_text())) or ""
    star = " *" if module in layers.PURE else ""
    return f"{'  ' * (depth + 1) + name + star:<26} {text.partition(chr(10))[0]}"


def arrows() -> str:
    """Which room may import which, as tests/unit/test_layers.py checks it."""
    lines = [
        f"| `{room}/` | {', '.join(f'`{to}/`' for to in sorted(may)) or 'nothing'} |\n"
        for room, may in layers.ARROWS.items()
    ]
    everybody = ", ".join(f"`{name}`" for name in sorted(layers.EVERYBODY_MAY))
    return (
        f"Every room may import {everybody}; besides:\n\n"
        f"| room | may import |\n|---|---|\n{''.join(lines)}"
    )


GENERATED: dict[str, tuple[Path, Callable[[], str]]] = {
    "settings": (ROOT / "docs/configuration.md", settings_table),
    "help": (ROOT / "docs/configuration.md", help_text),
    "verify": (ROOT / "docs/configuration.md", verify_help),
    "probe": (ROOT / "docs/configuration.md", probe_help),
    "doctor": (ROOT / "docs/configuration.md", doctor_help),
    "rooms": (ROOT / "docs/architecture.md", rooms),
    "arrows": (ROOT / "docs/architecture.md", arrows),
    "phases": (ROOT / "docs/architecture.md", phases),
    "encoding": (ROOT / "docs/report.md", digest_encoding),
}


def written(page: Path, text: str) -> str:
    """The page with every block as the code says. Raises KeyError on a block nobody makes."""

    def fill(found: re.Match[str]) -> str:
        begin, _, _ = found[0].partition("\n")
        return f"{begin}\n{GENERATED[found[1]][1]()}<!-- {found[1]}: end -->"

    missing = {name for name, (owner, _) in GENERATED.items() if owner == page}
    missing -= {found[1] for found in BLOCK.finditer(text)}
    if missing:
        sys.exit(f"{page.relative_to(ROOT)}: its lines for {sorted(missing)} are missing")
    return BLOCK.sub(fill, text)


def pages() -> list[Path]:
    return [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]


def anchors(page: Path) -> set[str]:
    """As GitHub names the headings of a page."""
    heads = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def dead_links(page: Path) -> Iterator[str]:
    for link in LINK.findall(FENCED.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"leads nowhere: {link}"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"no such heading: {link}"


def missing_headings() -> Iterator[str]:
    for error in vars(errors).values():
        if isinstance(error, type) and error.slug not in anchors(ROOT / errors.DOCS):  # type: ignore[attr-defined]
            yield f"no heading for the error {error.slug!r}"  # type: ignore[attr-defined]


def missing_tests(page: Path) -> Iterator[str]:
    known = {
        name for file in (ROOT / "tests").rglob("*.py") for name in TEST.findall(file.read_text())
    }
    yield from (
        f"no such test: {name}" for name in sorted(set(TEST.findall(page.read_text())) - known)
    )


def problems() -> Iterator[tuple[Path, str]]:
    for page in pages():
        yield from ((page, what) for what in dead_links(page))
    yield from ((ROOT / errors.DOCS, what) for what in missing_headings())
    guarantees = ROOT / "docs/guarantees.md"
    yield from ((guarantees, what) for what in missing_tests(guarantees))


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/docs.py", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if stale")
    check = parser.parse_args(argv).check
    num_bad = 0
    for page in {owner for owner, _ in GENERATED.values()}:
        old = page.read_text()
        new = written(page, old)
        if new != old:
            num_bad += check
            print(
                f"{page.relative_to(ROOT)}: {'stale; run scripts/docs.py' if check else 'written'}"
            )
            if not check:
                page.write_text(new)
    for page, what in problems():
        num_bad += 1
        print(f"{page.relative_to(ROOT)}: {what}")
    return 1 if num_bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
