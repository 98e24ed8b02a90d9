"""Make pages of the site from files of the repository, as an mkdocs hook: see mkdocs.yml.

Promise: docs/index.md shows the README; a link that leaves docs/ leads into the repository where pyproject.toml has its
address, and else becomes text with the path that it led to; lists and table cells are read as GitHub reads them.
Ban: writes no file, and asks no network.
"""

import os
import re
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS, README = ROOT / "docs", ROOT / "README.md"
DECISIONS = "decisions/"
FENCED = re.compile(r"(^ *```.*?^ *```)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s]+)\)")
IN_CODE = re.compile(r"`[^`\n]*`")
# A list right below a line of text, which GitHub takes for a list and Python-Markdown for text.
LIST = re.compile(r"^((?![\s|>#-]|\d+\. ).+)\n(?=(?:-|1\.) )", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put a folder's pages where the nav names the folder, and take the public address from pyproject.toml."""
    config.nav = _listed(config.nav)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    config.repo_url = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"] or None
    config.repo_name = "Source" if config.repo_url else None
    return config


def _listed(nav: Any) -> Any:
    if isinstance(nav, list):
        return [_listed(entry) for entry in nav]
    if isinstance(nav, dict):
        return {title: _listed(entry) for title, entry in nav.items()}
    if not nav.endswith("/"):
        return nav
    return [{"All": f"{nav}index.md"}, *(f"{nav}{page.name}" for page in _pages(nav))]


def _pages(folder: str) -> list[Path]:
    return sorted((DOCS / folder).glob("*.md"))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the list of decisions, to which a link to their folder leads."""
    titles = {page: page.read_text().partition("\n")[0].lstrip("# ") for page in _pages(DECISIONS)}
    text = "# Decisions\n\n" + "".join(f"- [{t}]({page.name})\n" for page, t in titles.items())
    files.append(File.generated(config, f"{DECISIONS}index.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    shown = DOCS / page.file.src_uri
    source = README if page.file.src_uri == "index.md" else shown
    if source is README:
        markdown = README.read_text()

    def led(link: re.Match[str]) -> str:
        return _led(link, source.parent, shown.parent, config.repo_url or "")

    pieces = FENCED.split(markdown)  # every second one is code
    pieces[::2] = [_as_on_github(LINK.sub(led, piece)) for piece in pieces[::2]]
    return "".join(pieces)


def _led(link: re.Match[str], source: Path, shown: Path, repo_url: str) -> str:
    """A link in a file of the folder `source`, as it must be in a page of the folder `shown`."""
    bang, text, where = link.groups()
    if re.match(r"[a-z]+:|#", where):
        return link[0]
    path, sharp, anchor = where.partition("#")
    target = Path(os.path.normpath(source / path))
    if target == README:
        target = DOCS / "index.md"
    if target.is_relative_to(DOCS):
        target = target / "index.md" if target.is_dir() else target
        return f"{bang}[{text}]({os.path.relpath(target, shown)}{sharp}{anchor})"
    name = target.relative_to(ROOT).as_posix()
    if repo_url and not bang:
        kind = "tree" if target.is_dir() else "blob"
        return f"[{text}]({repo_url.rstrip('/')}/{kind}/main/{name}{sharp}{anchor})"
    return text if IN_CODE.fullmatch(text) else f"{text} (`{name}`)"


def _as_on_github(text: str) -> str:
    """Without what Python-Markdown would render otherwise: `\\|` in a table's code, lists below text."""
    lines = [
        IN_CODE.sub(lambda code: code[0].replace(r"\|", "|"), line)
        if line.startswith("|")
        else line
        for line in text.split("\n")
    ]
    return LIST.sub(r"\1\n\n", "\n".join(lines))
